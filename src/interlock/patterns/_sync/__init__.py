# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Patterns on locks for threads; those for threads are generated."""
