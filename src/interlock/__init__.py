"""interlock: two programs must not do the same thing to the same thing at the same time."""

from typing import TYPE_CHECKING, Any

from interlock.core.claims import Check, ClaimView
from interlock.core.errors import (
    InvalidArgument,
    LockError,
    LockLost,
    LockTimeout,
    NotHeld,
    StoreError,
)
from interlock.locks.connect import aconnect, connect
from interlock.locks.events import Event, subscribe
from interlock.locks.sync.connection import Locks
from interlock.locks.sync.grants import Grant, Grants
from interlock.locks.sync.locks import Lock, RLock

if TYPE_CHECKING:
    from interlock.locks.aio.connection import AsyncLocks
    from interlock.locks.aio.grants import AsyncGrant, AsyncGrants
    from interlock.locks.aio.locks import AsyncLock, AsyncRLock

__version__ = "0.1.0"

__all__ = [
    "AsyncGrant",
    "AsyncGrants",
    "AsyncLock",
    "AsyncLocks",
    "AsyncRLock",
    "Check",
    "ClaimView",
    "Event",
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
    "subscribe",
]

_LATER = {
    "AsyncGrant": "interlock.locks.aio.grants",
    "AsyncGrants": "interlock.locks.aio.grants",
    "AsyncLock": "interlock.locks.aio.locks",
    "AsyncLocks": "interlock.locks.aio.connection",
    "AsyncRLock": "interlock.locks.aio.locks",
}


def __getattr__(name: str) -> Any:
    # Programs without an event loop start without asyncio.
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
