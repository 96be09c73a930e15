"""The client; written for tasks, generated for threads."""
