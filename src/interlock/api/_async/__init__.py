"""The public API; written for tasks, generated for threads."""
