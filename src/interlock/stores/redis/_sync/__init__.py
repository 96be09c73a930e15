# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The store on a Redis server; written for tasks, generated for threads."""
