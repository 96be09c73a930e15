# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The queue of etcd for threads; that for threads is generated."""
