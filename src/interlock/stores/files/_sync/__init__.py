# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The queues of stores that decide in the client, as tasks use them; `_sync` is generated from this."""
