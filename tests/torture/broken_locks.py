"""Locks within a process that are wrong in one way each, and right ones: the judge must know which is which."""

import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import Any
from uuid import uuid4

from interlock import LockLost, LockTimeout
from interlock.client.events import Event
from interlock.core.claims import WRITER_UNITS

SHORT = 0.008  # seconds of lease, shorter than many a body


class Claim:
    """A claim, which is its own grant, lock and `with`."""

    def __init__(self, locks: "Locks", name: str, timeout: float, units: int = 1, capacity: int = 1) -> None:
        self._locks, self.name, self.timeout, self.units, self.capacity = locks, name, timeout, units, capacity
        self.id, self.fence, self.deadline, self.over = uuid4().hex, 0, 0.0, False

    @property
    def held(self) -> bool:
        """As of a grant."""
        return not self.over and (self._locks.believes or monotonic() < self.deadline)

    def __enter__(self) -> "Claim":
        if not self._locks.enter(self):
            raise LockTimeout(self.name)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        held, self.over = self.held, True
        self._locks.leave(self)
        if not held and kind is None:
            raise LockLost(self.name)


class Locks:
    """Right ones: first come, first served, with leases that are short and never renewed."""

    believes = False
    """Do holders believe that they hold though their lease has ended?"""

    def __init__(self, url: str, **_: Any) -> None:
        self._changed = threading.Condition()
        self.using: dict[str, list[Claim]] = defaultdict(list)
        self.waiting: dict[str, list[Claim]] = defaultdict(list)
        self._fence = 0
        self._listeners: list[Callable[[Event], object]] = []

    def enter(self, claim: Claim) -> bool:
        """Wait in line; False if the time is over."""
        until = monotonic() + claim.timeout
        with self._changed:
            self.waiting[claim.name].append(claim)
            self.promote(claim.name)
            if claim in self.waiting[claim.name]:
                for listener in self._listeners:
                    listener(Event("queued", claim.name, claim.id, None, "", None, None))
            while claim in self.waiting[claim.name]:
                if monotonic() >= until:
                    self.waiting[claim.name].remove(claim)
                    self.promote(claim.name)
                    return False
                self._changed.wait(SHORT)
                self.promote(claim.name)
            return True

    def leave(self, claim: Claim) -> None:
        """Release it."""
        with self._changed:
            self.remove(claim)
            self.promote(claim.name)

    def remove(self, claim: Claim) -> None:
        """Take it out, if it is still there."""
        if claim in self.using[claim.name]:
            self.using[claim.name].remove(claim)

    def promote(self, name: str) -> None:
        """Let in who may."""
        self.using[name] = [claim for claim in self.using[name] if monotonic() < claim.deadline]
        while self.waiting[name] and self.fits(self.next_of(name)):
            self.let_in(self.next_of(name))

    def let_in(self, claim: Claim) -> None:
        """Let one in."""
        self._fence += 1
        claim.fence, claim.deadline = self._fence, monotonic() + SHORT
        self.waiting[claim.name].remove(claim)
        self.using[claim.name].append(claim)
        self._changed.notify_all()

    def next_of(self, name: str) -> Claim:
        """Return who is next."""
        return self.waiting[name][0]

    def fits(self, claim: Claim) -> bool:
        """Tell whether there is room for it."""
        return sum(each.units for each in self.using[claim.name]) + claim.units <= claim.capacity

    def lock(self, name: str, *, timeout: float = 10.0, **_: Any) -> Any:
        """As of a connection."""
        return Claim(self, name, timeout)

    rlock = lock

    def semaphore(self, name: str, permits: int, *, units: int, timeout: float, **_: Any) -> Any:
        """As of a connection."""
        return Claim(self, name, timeout, units, permits)

    def rwlock(self, name: str, *, timeout: float, **_: Any) -> Any:
        """As of a connection; its name stands for both."""
        locks = self

        class Both:
            def read(self) -> Claim:
                return Claim(locks, name, timeout, 1, WRITER_UNITS)

            def write(self) -> Claim:
                return Claim(locks, name, timeout, WRITER_UNITS, WRITER_UNITS)

        return Both()

    def all(self, *parts: Claim, timeout: float) -> Any:
        """As of a connection."""
        return All(sorted(parts, key=lambda part: part.name), timeout)

    def subscribe(self, function: Callable[[Event], object]) -> None:
        """As of a connection."""
        self._listeners.append(function)

    def close(self) -> None:
        """As of a connection."""


class All:
    """Several locks, taken in one order."""

    def __init__(self, parts: list[Claim], timeout: float) -> None:
        self._parts, self._until, self._stack = parts, monotonic() + timeout, ExitStack()

    def __enter__(self) -> "Grants":
        with ExitStack() as stack:
            for part in self._parts:
                part.timeout = max(0.0, self._until - monotonic())
                stack.enter_context(part)
            self._stack = stack.pop_all()
        return Grants(self._parts)

    def __exit__(self, *why: Any) -> None:
        self._stack.__exit__(*why)


class Grants(list[Claim]):
    """As of several locks."""

    @property
    def held(self) -> bool:
        """As of a grant."""
        return all(part.held for part in self)


class NoLock(Locks):
    """There is always room."""

    def fits(self, claim: Claim) -> bool:
        """As of `Locks`, but wrong."""
        return True


class PlainDel(Locks):
    """Who releases removes whoever holds."""

    def remove(self, claim: Claim) -> None:
        """As of `Locks`, but wrong."""
        self.using[claim.name].clear()


class Overrun(Locks):
    """Nobody notices that the lease has ended."""

    believes = True


class Barging(Locks):
    """Who came last is next."""

    def next_of(self, name: str) -> Claim:
        """As of `Locks`, but wrong."""
        return self.waiting[name][-1]


class Unrevoked(Locks):
    """Who has lost the lock still hands it over, and its successor believes that."""

    def leave(self, claim: Claim) -> None:
        """As of `Locks`, but wrong."""
        with self._changed:
            if claim not in self.using[claim.name] and self.waiting[claim.name]:
                self.let_in(self.waiting[claim.name][0])
        super().leave(claim)
