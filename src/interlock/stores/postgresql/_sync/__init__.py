# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""PostgreSQL for tasks; that for threads is generated from it."""
