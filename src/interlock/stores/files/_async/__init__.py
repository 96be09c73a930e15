"""The queue of the file store; written for tasks, generated for threads."""
