# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""`transact`, and the interface of a backend; `transact` is generated."""
