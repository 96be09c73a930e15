# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The records in a database of Django, as coroutines; threads have the generated twin."""
