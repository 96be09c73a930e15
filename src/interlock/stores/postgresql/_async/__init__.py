"""PostgreSQL; written for tasks, generated for threads."""
