# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Queues for stores whose decisions are made in the client; written for tasks, generated for threads."""
