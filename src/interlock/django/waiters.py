"""The waiters of this process, so that its threads and tasks hand over to each other at once."""

import math
import random
import time
from collections.abc import Iterable
from typing import Any

from interlock.core.claims import Claim
from interlock.core.queue import Granted
from interlock.runtime.process import in_forked_child
from interlock.runtime.waiters import WaiterRegistry

SHORTEST, LONGEST = 0.02, 0.25  # seconds between two looks of a waiter whom nobody tells
BEHIND = 1.0  # the same for one behind another of this process, or where other processes tell it
GROWTH = 1.5
YOUNG = 0.25  # of its ttl: so long a waiter looks without writing
FEW = 16  # waiters of a line who are said to be here when another leaves it
MOST_CLEAN = 10_000  # claims; those of grants that were lost are not taken back


class _Waiter:
    __slots__ = ("key", "looks", "place", "sent", "wakeup", "woken")

    def __init__(self, key: str, wakeup: Any, sent: float) -> None:
        self.key = key
        self.wakeup = wakeup
        self.sent = sent
        self.looks = 0
        self.woken = False
        self.place = math.inf  # in the line, once it was seen there

    def tell(self, message: Granted | None = None) -> None:
        self.looks = 0
        self.woken = True
        self.wakeup.tell(message)


class LineWaiters(WaiterRegistry):
    """The waiters of this process, for each line of one database."""

    _known: dict[str, "LineWaiters"] = {}

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        super().start_afresh()
        self._lines: dict[str, dict[str, _Waiter]] = {}
        self._clean: set[str] = set()

    @classmethod
    def of(cls, alias: str) -> "LineWaiters":
        """Return the waiters of a database; all stores on it share them."""
        return cls._known.setdefault(alias, cls())

    @classmethod
    def all(cls) -> "list[LineWaiters]":
        """Return the waiters of all databases."""
        return list(cls._known.values())

    def note(self, claim: Claim, wakeup: Any, sent: float) -> None:
        """Note a waiter, and when the request was sent that began or extended its lease."""
        if wakeup is None:
            return
        with self._mutex:
            waiter = self._waiters.get(claim.id)
            if waiter is None:
                waiter = self._waiters[claim.id] = _Waiter(claim.spec.key, wakeup, sent)
                self._lines.setdefault(waiter.key, {})[claim.id] = waiter
            else:
                waiter.wakeup, waiter.sent = wakeup, sent

    def forget(self, claim: Claim) -> None:
        """Forget a waiter that waits no more."""
        with self._mutex:
            self._clean.discard(claim.id)
            self._drop(claim.id)

    def _drop(self, id: str) -> _Waiter | None:
        waiter: _Waiter | None = self._waiters.pop(id, None)
        if waiter is not None:
            waiters = self._lines[waiter.key]
            del waiters[id]
            if not waiters:
                del self._lines[waiter.key]
        return waiter

    def note_clean(self, id: str) -> None:
        """Note a holder before whom no other let its lease end, so that nobody may still be committing."""
        with self._mutex:
            if len(self._clean) >= MOST_CLEAN:
                self._clean.clear()  # they will ask
            self._clean.add(id)

    def is_clean(self, id: str) -> bool:
        """True if `note_clean` was said of a claim that has not left since."""
        return id in self._clean

    def ids_of(self, key: str) -> list[str]:
        """Return the ids of the first waiters of a line that are here."""
        with self._mutex:
            waiters = self._lines.get(key, {})
            return sorted(waiters, key=lambda id: waiters[id].place)[:FEW]

    def is_young(self, claim: Claim, now: float) -> bool:
        """True if the lease of a waiter needs no extension yet."""
        waiter = self._waiters.get(claim.id)
        return waiter is not None and now - waiter.sent < claim.spec.ttl * YOUNG

    def was_woken(self, claim: Claim) -> bool:
        """True if a waiter was told since it was asked here, and its lease needs no extension yet."""
        waiter = self._waiters.get(claim.id)
        if waiter is None or not waiter.woken:
            return False
        waiter.woken = False
        return self.is_young(claim, time.monotonic())

    def pause(self, claim: Claim, longest: float = LONGEST) -> float:
        """Return the seconds until a waiter's next look: longer each time, and no two alike.

        Args:
            claim: of the waiter.
            longest: seconds, for the first of a line here.
        """
        looks, first = 0, True
        with self._mutex:
            waiters = self._lines.get(claim.spec.key, {})
            waiter = self._waiters.get(claim.id)
            if waiter is not None:
                looks, waiter.looks = waiter.looks, min(waiter.looks + 1, 20)
                first = waiter is _first(waiters)
        pause = min(longest, SHORTEST * GROWTH**looks) if first else BEHIND
        return pause * random.uniform(0.7, 1.0)

    def seen(self, key: str, places: Iterable[tuple[str, int]]) -> None:
        """Note the places of a line's records, by their ids."""
        with self._mutex:
            waiters = self._lines.get(key)
            if waiters is None:
                return
            for id, place in places:
                if id in waiters:
                    waiters[id].place = place

    def wake_first(self, key: str, but: str | None = None) -> None:
        """Tell the first waiter of a line to look again."""
        with self._mutex:
            waiters = self._lines.get(key, {})
            first = _first({id: waiter for id, waiter in waiters.items() if id != but})
        if first is not None:
            first.tell()

    def notify(self, id: str, fence: int) -> bool:
        """Tell a waiter to look; one with a fence holds the lock now, and waits no more."""
        if not fence:
            return super().notify(id, 0)
        with self._mutex:
            waiter = self._drop(id)
            if waiter is not None:
                self.note_clean(id)
        if waiter is not None:
            waiter.tell(Granted(id, fence))
        return waiter is not None

    def wake_all(self) -> None:
        """Tell the first waiter of each line to look again."""
        for key in list(self._lines):
            self.wake_first(key)


def _first(waiters: dict[str, _Waiter]) -> _Waiter | None:
    return min(waiters.values(), key=lambda waiter: waiter.place, default=None)


def _after_fork() -> None:
    for waiters in LineWaiters._known.values():
        waiters.start_afresh()


in_forked_child(_after_fork)
