"""Locks that are one key of Redis or Valkey: plain, re-entrant, with an identity, and a drop-in for redis-py's.

They speak with all programs that lock by `SET key token NX PX`. For a fair line, renewal and fences take
`interlock.connect("redis://...")` instead. No client library is imported: give a client that you have.
"""

from interlock.keylock._async.keylock import AsyncIdentityLock, AsyncKeyLock, AsyncReentrantKeyLock
from interlock.keylock._sync.keylock import IdentityLock, KeyLock, ReentrantKeyLock
from interlock.keylock.clientlock import AsyncClientLock, ClientLock

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
