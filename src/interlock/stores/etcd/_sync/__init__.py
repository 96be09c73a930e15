# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""The queue of etcd; written for tasks, generated for threads."""
