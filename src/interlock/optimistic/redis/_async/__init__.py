"""Transactions on Redis for asyncio tasks; the source of `_sync`."""
