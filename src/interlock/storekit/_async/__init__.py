"""The frameworks for tasks; those for threads are generated."""
