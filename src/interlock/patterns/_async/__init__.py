"""Patterns on locks for tasks; those for threads are generated."""
