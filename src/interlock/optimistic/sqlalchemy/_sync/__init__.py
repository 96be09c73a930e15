# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Sessions for asyncio tasks; the source of `_sync`."""
