"""Frameworks for stores; written for tasks, generated for threads."""
