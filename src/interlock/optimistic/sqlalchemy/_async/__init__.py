"""Sessions for asyncio tasks; the source of `_sync`."""
