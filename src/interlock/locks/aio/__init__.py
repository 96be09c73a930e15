"""Locks for asyncio tasks: what `aconnect` returns."""
