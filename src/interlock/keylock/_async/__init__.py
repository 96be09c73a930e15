"""Locks of one key for asyncio tasks; the source of `_sync`."""
