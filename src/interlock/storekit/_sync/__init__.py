# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The frameworks for threads; those for threads are generated."""
