# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The queue of the file store; written for tasks, generated for threads."""
