"""Locks for threads: what `connect` returns."""
