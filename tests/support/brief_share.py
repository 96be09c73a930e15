"""Shared folders in tests: leases shorter than users may have, and faults of a network file system."""

import errno
import os
import random
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
from interlock.core.claims import MIN_TTL
from interlock.stores.share import ShareStore
from interlock.stores.share.system import System

T = TypeVar("T")
MOUNTS = "INTERLOCK_TEST_MOUNTS"
"""The variable with two mount points of one file system, of which each process uses one, separated by a colon."""


class BriefShareStore(ShareStore):
    """A store in a shared folder whose leases may be as short as those of the contract's tests."""

    shortest_ttl = MIN_TTL


def store_of(url: str) -> BriefShareStore:
    """Return the store of a URL; each process takes one of two mounts, if there are two."""
    mounts = os.environ.get(MOUNTS, "").split(":")
    if len(mounts) > 1:
        url = url.replace(mounts[0], mounts[os.getpid() % 2])
    return BriefShareStore.from_url(urlsplit(url))


def connect(url: str, namespace: str = "", ttl: float | None = None) -> Locks:
    """Connect threads, as `interlock.connect`, with brief leases."""
    return Locks(store_of(url), namespace=namespace, ttl=ttl)


def aconnect(url: str, namespace: str = "", ttl: float | None = None) -> AsyncLocks:
    """Connect tasks, as `interlock.aconnect`, with brief leases."""
    return AsyncLocks(store_of(url), namespace=namespace, ttl=ttl)


class Counted(System):
    """Counts calls below a folder; a subclass does something at one of them.

    Args:
        at: the number of the call, from 0.

    Attributes:
        calls: the names of the calls so far.
    """

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.calls: list[str] = []

    def perform(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        self.calls.append(getattr(call, "__name__", "call"))
        if len(self.calls) - 1 == self.at:
            return self.strike(call, *args, **how)
        return call(*args, **how)

    def strike(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        """Perform the chosen call."""
        return call(*args, **how)


class Killed(Counted):
    """Kills the process before, or after, one of its calls.

    Args:
        at: the number of the call.
        after: True to perform the call first.
    """

    def __init__(self, at: int, after: bool) -> None:
        super().__init__(at)
        self._after = after

    def strike(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        if self._after:
            call(*args, **how)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it lives")


class Failed(Counted):
    """Fails in one of its calls.

    Args:
        at: the number of the call.
        error: the number of the error.
        done: True to perform the call before.
    """

    def __init__(self, at: int, error: int, done: bool = False) -> None:
        super().__init__(at)
        self._error, self._done = error, done

    def strike(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        if self._done:
            call(*args, **how)
        raise OSError(self._error, os.strerror(self._error))


class Sleeper(System):
    """Sleeps before its next rename, until it may go on.

    Attributes:
        armed: True to sleep at the next rename.
        sleeps, go: it sleeps; it may go on.
    """

    def __init__(self) -> None:
        self.armed = False
        self.sleeps, self.go = threading.Event(), threading.Event()

    def perform(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        if self.armed and call is os.rename:
            self.armed = False
            self.sleeps.set()
            assert self.go.wait(30)
        return call(*args, **how)


class Rough(System):
    """A network file system with many faults: lost and late replies, stale listings, sleeping clients.

    Args:
        seed: of the random choices.

    Attributes:
        faults: how often each fault has happened.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._listings: dict[str, deque[Any]] = {}
        self.faults: Counter[str] = Counter()

    def perform(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        if call is os.rename and "/.probe-" not in args[0]:
            self._rename(*args)
            return None  # type: ignore[return-value]
        result: Any = call(*args, **how)
        if call is os.listdir:
            past = self._listings.setdefault(args[0], deque(maxlen=8))
            past.append(result)
            if self._random.random() < 0.25:
                self.faults["stale"] += 1
                return self._random.choice(list(past))  # type: ignore[no-any-return]
        return result  # type: ignore[no-any-return]

    def _rename(self, old: str, new: str) -> None:
        luck = self._random.random()
        if luck < 0.06:
            os.rename(old, new)
            self._fail("sent again", errno.ENOENT)
        elif luck < 0.10:
            self._fail("negative cache", errno.ENOENT)
        elif luck < 0.14:
            os.rename(old, new)
            self._fail("no reply", errno.EIO)
        elif luck < 0.18:
            late = threading.Timer(self._random.random() / 5, quietly, (os.rename, old, new))
            late.daemon = True
            late.start()
            self._fail("late", errno.ETIMEDOUT)
        elif luck < 0.22:
            self.faults["sleep"] += 1
            time.sleep(self._random.random() / 5)
        os.rename(old, new)

    def _fail(self, fault: str, number: int) -> None:
        self.faults[fault] += 1
        raise OSError(number, os.strerror(number))


def quietly(call: Callable[..., object], *args: object) -> None:
    """Perform a call whose error nobody sees."""
    try:
        call(*args)
    except OSError:
        pass


class Emulated(System):
    """A mount that only emulates files, such as that of a bucket: no hard links, and each rename seems to succeed."""

    def perform(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        if call is os.link:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call(*args, **how)


class Forgetful(System):
    """A mount on which each rename of a file succeeds, also the second one.

    Args:
        after_probe: True to begin after the check of the folder.
    """

    def __init__(self, after_probe: bool = False) -> None:
        self._kept = ".race" if after_probe else "."

    def perform(self, call: Callable[..., T], *args: Any, **how: Any) -> T:
        if call is os.rename and self._kept in args[0]:
            Path(args[1]).touch()
            return None  # type: ignore[return-value]
        return call(*args, **how)


def files_of(folder: Path, name: str) -> list[str]:
    """Return the kinds and numbers of the files of a name without a namespace, such as ["d.1", "t.1"]."""
    return sorted(each.name.rpartition(".")[0] for each in (folder / "=" / f"={name}").iterdir())
