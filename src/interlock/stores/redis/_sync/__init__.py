# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The store on a Redis server for threads; that for threads is generated."""
