"""Locks of one key; written for tasks, generated for threads."""
