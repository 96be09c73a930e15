# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The queue on sessions, and the requests on a session; written for tasks, generated for threads."""
