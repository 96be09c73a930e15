# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Transactions on Redis for asyncio tasks; the source of `_sync`."""
