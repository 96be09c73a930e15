# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The queue on sessions, and the requests on a session, for asyncio tasks; `_sync` is generated from this."""
