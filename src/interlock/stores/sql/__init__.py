"""Locks in SQL databases: the text of each step, and the waiters; it knows no client library."""
