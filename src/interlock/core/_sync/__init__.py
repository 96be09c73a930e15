# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Protocols of more than one step; written for tasks, generated for threads."""
