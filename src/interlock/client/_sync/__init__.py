# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The client of tasks; that of threads, `_sync`, is generated from this."""
