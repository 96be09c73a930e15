"""interlock: two programs must not do the same thing to the same thing at the same time."""

from typing import TYPE_CHECKING, Any

from interlock.client._sync.grants import Grant, Grants
from interlock.client._sync.locks import Lock, Locks, RLock
from interlock.client.cancel import Cancel
from interlock.client.connect import aconnect, connect
from interlock.client.events import Event, subscribe
from interlock.core.claims import Check, ClaimView
from interlock.core.errors import (
    InvalidArgument,
    LockError,
    LockLost,
    LockTimeout,
    NotHeld,
    NotKept,
    StoreError,
    Unsupported,
)

if TYPE_CHECKING:
    from interlock.client._async.election import AsyncElection
    from interlock.client._async.grants import AsyncGrant, AsyncGrants
    from interlock.client._async.locks import AsyncLock, AsyncLocks, AsyncRLock
    from interlock.client._sync.election import Election

__version__ = "0.1.0"

__all__ = [
    "AsyncElection",
    "AsyncGrant",
    "AsyncGrants",
    "AsyncLock",
    "AsyncLocks",
    "AsyncRLock",
    "Cancel",
    "Check",
    "Election",
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
    "NotKept",
    "RLock",
    "StoreError",
    "Unsupported",
    "aconnect",
    "connect",
    "subscribe",
]

_LATER = {
    "AsyncElection": "interlock.client._async.election",
    "AsyncGrant": "interlock.client._async.grants",
    "AsyncGrants": "interlock.client._async.grants",
    "AsyncLock": "interlock.client._async.locks",
    "AsyncLocks": "interlock.client._async.locks",
    "AsyncRLock": "interlock.client._async.locks",
    "Election": "interlock.client._sync.election",
}


def __getattr__(name: str) -> Any:
    # Programs without an event loop start without asyncio.
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
