"""Queues for stores whose decisions are made in the client, for asyncio tasks; `_sync` is generated from this."""
