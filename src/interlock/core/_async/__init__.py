"""Protocols of more than one step; written for tasks, generated for threads."""
