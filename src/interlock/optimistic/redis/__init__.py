"""Optimistic transactions on Redis and Valkey, by WATCH, MULTI and EXEC."""
