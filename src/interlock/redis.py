"""Locks that are one key of Redis or Valkey: plain, re-entrant, with an identity, and a drop-in for redis-py's.

They speak with all programs that lock by `SET key token NX PX`. For a fair line, renewal and fences take
`interlock.connect("redis://...")` instead. No client library is imported: give a client that you have.
"""

from interlock.keylock.aclientlock import AsyncClientLock
from interlock.keylock.akeylock import AsyncKeyLock
from interlock.keylock.clientlock import ClientLock
from interlock.keylock.identity import AsyncIdentityLock, IdentityLock
from interlock.keylock.keylock import KeyLock
from interlock.keylock.reentrant import AsyncReentrantKeyLock, ReentrantKeyLock

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
