"""interlock: two programs must not do the same thing to the same thing at the same time."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from interlock.aio.connection import AsyncLocks
    from interlock.aio.grants import AsyncGrant, AsyncGrants
    from interlock.aio.locks import AsyncLock, AsyncRLock

__version__ = "0.1.0"

__all__ = [
    "AsyncGrant",
    "AsyncGrants",
    "AsyncLock",
    "AsyncLocks",
    "AsyncRLock",
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

_LATER = {
    "AsyncGrant": "interlock.aio.grants",
    "AsyncGrants": "interlock.aio.grants",
    "AsyncLock": "interlock.aio.locks",
    "AsyncLocks": "interlock.aio.connection",
    "AsyncRLock": "interlock.aio.locks",
}


def __getattr__(name: str) -> Any:
    # Programs without an event loop start without asyncio.
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
