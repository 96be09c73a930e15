"""Locks that are one key of Redis or Valkey; public is `interlock.redis`."""
