"""Locks that are one key of Redis or Valkey: plain, re-entrant, with an identity, and a drop-in for redis-py's.

They speak with all programs that lock by `SET key token NX PX`. For a fair line, renewal and fences take
`interlock.connect("redis://...")` instead. No client library is imported: give a client that you have.
"""

from interlock.redis.aclientlock import AsyncClientLock
from interlock.redis.akeylock import AsyncKeyLock
from interlock.redis.clientlock import ClientLock
from interlock.redis.identity import AsyncIdentityLock, IdentityLock
from interlock.redis.keylock import KeyLock
from interlock.redis.reentrant import AsyncReentrantKeyLock, ReentrantKeyLock

__all__ = [
    "AsyncClientLock",
    "AsyncIdentityLock",
    "AsyncKeyLock",
    "AsyncReentrantKeyLock",
    "ClientLock",
    "IdentityLock",
    "KeyLock",
    "ReentrantKeyLock",
]
