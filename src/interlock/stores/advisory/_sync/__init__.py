# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The queue on sessions and the sessions themselves, as tasks use them; `_sync` is generated from this."""
