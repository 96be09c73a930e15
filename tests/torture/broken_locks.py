"""Locks in one process, each broken in one way, and correct ones: a test that the judge finds the broken ones."""

import threading
from collections import defaultdict
from collections.abc import Callable
from time import monotonic
from typing import Any
from uuid import uuid4

from interlock import LockLost, LockTimeout
from interlock.client.events import Event

SHORT = 0.008  # seconds of lease, shorter than many critical sections


class Claim:
    """A claim, which is also its own grant, lock and context manager."""

    def __init__(self, locks: "Locks", name: str, timeout: float) -> None:
        self._locks, self.name, self.timeout = locks, name, timeout
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
    """Correct locks: first come, first served, with short leases that are never renewed."""

    believes = False
    """True if holders do not notice that their lease has expired."""

    def __init__(self, url: str, **_: Any) -> None:
        self._changed = threading.Condition()
        self.using: dict[str, list[Claim]] = defaultdict(list)
        self.waiting: dict[str, list[Claim]] = defaultdict(list)
        self._fence = 0
        self._listeners: list[Callable[[Event], object]] = []

    def enter(self, claim: Claim) -> bool:
        """Wait in line; False after the time-out."""
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
        """Remove a claim, if it is still there."""
        if claim in self.using[claim.name]:
            self.using[claim.name].remove(claim)

    def promote(self, name: str) -> None:
        """Promote the waiters for which there is room."""
        self.using[name] = [claim for claim in self.using[name] if monotonic() < claim.deadline]
        while self.waiting[name] and self.fits(self.next_of(name)):
            self.let_in(self.next_of(name))

    def let_in(self, claim: Claim) -> None:
        """Promote one waiter."""
        self._fence += 1
        claim.fence, claim.deadline = self._fence, monotonic() + SHORT
        self.waiting[claim.name].remove(claim)
        self.using[claim.name].append(claim)
        self._changed.notify_all()

    def next_of(self, name: str) -> Claim:
        """Return the next waiter."""
        return self.waiting[name][0]

    def fits(self, claim: Claim) -> bool:
        """Return True if there is room for a claim."""
        return not self.using[claim.name]

    def lock(self, name: str, *, timeout: float = 10.0, **_: Any) -> Any:
        """As of a connection."""
        return Claim(self, name, timeout)

    def subscribe(self, function: Callable[[Event], object]) -> None:
        """As of a connection."""
        self._listeners.append(function)

    def close(self) -> None:
        """As of a connection."""


class NoLock(Locks):
    """Broken: there is always room."""

    def fits(self, claim: Claim) -> bool:
        """As of `Locks`, but wrong."""
        return True


class PlainDel(Locks):
    """Broken: a release removes any holder."""

    def remove(self, claim: Claim) -> None:
        """As of `Locks`, but wrong."""
        self.using[claim.name].clear()


class Overrun(Locks):
    """Broken: holders do not notice that their lease has expired."""

    believes = True


class Barging(Locks):
    """Broken: the last waiter is next."""

    def next_of(self, name: str) -> Claim:
        """As of `Locks`, but wrong."""
        return self.waiting[name][-1]


class Unrevoked(Locks):
    """Broken: a holder that has lost the lock still hands it over, and the successor trusts that."""

    def leave(self, claim: Claim) -> None:
        """As of `Locks`, but wrong."""
        with self._changed:
            if claim not in self.using[claim.name] and self.waiting[claim.name]:
                self.let_in(self.waiting[claim.name][0])
        super().leave(claim)
