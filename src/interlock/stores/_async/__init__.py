"""Queues for stores whose decisions are made in the client; written for tasks, generated for threads."""
