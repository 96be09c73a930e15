"""Locks on files and in memory, ours and the peers', each opened at a place.

The peers keep their default settings, except that they wait without limit: a time-out would distort the figures.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from bench.model import Place

if TYPE_CHECKING:
    from collections.abc import Callable

NO_LIMIT = 3600.0  # seconds; for peers that can't wait without a limit


class Lock(Protocol):
    """The methods of a lock that the scenarios use."""

    def acquire(self) -> object: ...
    def release(self) -> object: ...


class AsyncLock(Protocol):
    """The same, as coroutines."""

    async def acquire(self) -> object: ...
    async def release(self) -> object: ...


def interlock_file(place: Place) -> Any:
    """interlock on a folder."""
    import interlock

    return place.closing.enter_context(interlock.connect(place.folder)).lock(place.name)


def interlock_file_async(place: Place) -> Any:
    """interlock on a folder, asyncio; call it inside a running loop."""
    import interlock

    return interlock.aconnect(place.folder).lock(place.name)


def interlock_memory(place: Place) -> Any:
    """interlock in memory."""
    import interlock

    return place.closing.enter_context(interlock.connect("memory://")).lock(place.name)


def interlock_memory_async(place: Place) -> Any:
    """interlock in memory, asyncio; call it inside a running loop."""
    import interlock

    return interlock.aconnect("memory://").lock(place.name)


def filelock_lock(place: Place) -> Any:
    """filelock's FileLock; waits without limit, polls every 50 ms."""
    import filelock

    return filelock.FileLock(place.folder / place.name)


def filelock_async(place: Place) -> Any:
    """filelock's AsyncFileLock; works in a thread of the loop's executor."""
    import filelock

    return filelock.AsyncFileLock(place.folder / place.name)


def fasteners_lock(place: Place) -> Any:
    """fasteners' InterProcessLock; waits without limit, polls every 10 to 100 ms."""
    import fasteners  # type: ignore[import-untyped, unused-ignore]

    # It logs a traceback for each release that fails; the scenarios count those as errors.
    logging.getLogger("fasteners").addHandler(logging.NullHandler())
    return fasteners.InterProcessLock(str(place.folder / place.name))


def portalocker_lock(place: Place) -> Any:
    """portalocker's Lock; polls every 250 ms; its default time-out is 5 s."""
    import portalocker

    return portalocker.Lock(place.folder / place.name, timeout=NO_LIMIT)


class Flock:
    """flock(2) on a descriptor that stays open, blocking: the least possible cost of a file lock."""

    def __init__(self, place: Place) -> None:
        self._fd = os.open(place.folder / place.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self) -> None:
        """Wait for the lock."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        """Give it back."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)


class NoLock:
    """No lock: the control that shows that a scenario detects lost updates."""

    def __init__(self, place: Place) -> None:
        del place

    def acquire(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""


def shared(make: Callable[[Place], Lock]) -> Callable[[Place], Callable[[], Lock]]:
    """All threads use one lock object."""

    def opener(place: Place) -> Callable[[], Lock]:
        lock = make(place)
        return lambda: lock

    return opener


def own(make: Callable[[Place], Lock]) -> Callable[[Place], Callable[[], Lock]]:
    """Each thread has its own lock object, on the same name."""
    return lambda place: lambda: make(place)


def interlock_file_own(place: Place) -> Callable[[], Lock]:
    """Each thread has its own lock object, from one client."""
    import interlock

    locks = place.closing.enter_context(interlock.connect(place.folder))
    return lambda: locks.lock(place.name)


def threading_lock(place: Place) -> Lock:
    """The standard library's lock between threads: the limit."""
    del place
    return threading.Lock()
