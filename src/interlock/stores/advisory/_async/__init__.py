"""The queue on sessions, and the requests on a session, for asyncio tasks; `_sync` is generated from this."""
