# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The public API; written for tasks, generated for threads."""
