# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""Patterns on locks; written for tasks, generated for threads."""
