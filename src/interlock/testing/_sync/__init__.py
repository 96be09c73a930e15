# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""What tests of both APIs use; `_sync` is generated from this."""
