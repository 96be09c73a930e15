# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""`transact`, and what a backend offers it; the source of `_sync`."""
