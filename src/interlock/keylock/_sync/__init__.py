# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Locks of one key for asyncio tasks; the source of `_sync`."""
