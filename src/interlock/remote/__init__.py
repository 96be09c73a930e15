"""What stores on servers, and waiters of several processes, have in common; one of each part."""
