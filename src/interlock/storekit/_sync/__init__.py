# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Frameworks for stores; written for tasks, generated for threads."""
