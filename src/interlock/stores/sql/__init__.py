"""Locks in SQL databases: the text of each step, and who waits; it knows no client library."""
