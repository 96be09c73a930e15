"""interlock: two programs must not do the same thing to the same thing at the same time."""

from interlock.claims import Check, ClaimView
from interlock.errors import (
    InvalidArgument,
    LockError,
    LockLost,
    LockTimeout,
    NotHeld,
    StoreError,
)
from interlock.threads.connection import Locks
from interlock.threads.grants import Grant, Grants
from interlock.threads.locks import Lock, RLock
from interlock.urls import aconnect, connect

__version__ = "0.1.0"

__all__ = [
    "Check",
    "ClaimView",
    "Grant",
    "Grants",
    "InvalidArgument",
    "Lock",
    "LockError",
    "LockLost",
    "LockTimeout",
    "Locks",
    "NotHeld",
    "RLock",
    "StoreError",
    "aconnect",
    "connect",
]
