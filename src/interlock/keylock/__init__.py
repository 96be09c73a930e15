"""Locks that are one key of Redis or Valkey; `interlock.redis` is the public name."""
