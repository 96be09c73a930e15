# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Locks of one key; written for tasks, generated for threads."""
