# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The public API of threads; that of threads is generated."""
