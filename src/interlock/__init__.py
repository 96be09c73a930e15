"""interlock: locks across threads, tasks, processes and machines."""

from interlock.runtime.loading import loading as _loading

# Type checkers accept this name like that of `typing`, which takes longer to load than this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from interlock.api._async.locks import AsyncLocks
    from interlock.api._sync.locks import Locks
    from interlock.api.connect import aconnect, connect
    from interlock.client._async.grants import AsyncGrant, AsyncGrants
    from interlock.client._async.lock import AsyncLock, AsyncRLock
    from interlock.client._sync.grants import Grant, Grants
    from interlock.client._sync.lock import Lock, RLock
    from interlock.client.cancel import Cancel
    from interlock.client.events import Event, subscribe
    from interlock.core.claims import Check, ClaimView
    from interlock.core.errors import (
        Busy,
        InvalidArgument,
        LockError,
        LockLost,
        LockTimeout,
        NotHeld,
        NotKept,
        PayloadMismatch,
        StoreError,
        Unsupported,
    )
    from interlock.patterns._async.election import AsyncElection
    from interlock.patterns._sync.election import Election

__version__ = "0.1.0"

__all__ = [
    "AsyncElection",
    "AsyncGrant",
    "AsyncGrants",
    "AsyncLock",
    "AsyncLocks",
    "AsyncRLock",
    "Busy",
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
    "PayloadMismatch",
    "RLock",
    "StoreError",
    "Unsupported",
    "aconnect",
    "connect",
    "subscribe",
]

_HOMES = {
    "AsyncElection": "patterns._async.election",
    "AsyncGrant": "client._async.grants",
    "AsyncGrants": "client._async.grants",
    "AsyncLock": "client._async.lock",
    "AsyncLocks": "api._async.locks",
    "AsyncRLock": "client._async.lock",
    "Busy": "core.errors",
    "Cancel": "client.cancel",
    "Check": "core.claims",
    "ClaimView": "core.claims",
    "Election": "patterns._sync.election",
    "Event": "client.events",
    "Grant": "client._sync.grants",
    "Grants": "client._sync.grants",
    "InvalidArgument": "core.errors",
    "Lock": "client._sync.lock",
    "LockError": "core.errors",
    "LockLost": "core.errors",
    "LockTimeout": "core.errors",
    "Locks": "api._sync.locks",
    "NotHeld": "core.errors",
    "NotKept": "core.errors",
    "PayloadMismatch": "core.errors",
    "RLock": "client._sync.lock",
    "StoreError": "core.errors",
    "Unsupported": "core.errors",
    "aconnect": "api.connect",
    "connect": "api.connect",
    "subscribe": "client.events",
}
"""The module of each public name."""

if not TYPE_CHECKING:  # hidden from type checkers, because they would accept any misspelled name as public

    def __getattr__(name: str) -> object:
        """Return a public name; its module is loaded at first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with _loading:
            from importlib import import_module

            found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
