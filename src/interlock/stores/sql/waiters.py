"""The waiters of this process, by claim, and how long until each looks again by itself."""

import random
import threading
from typing import Any

from interlock.core.queue import Granted

LOOK_AGAIN = 5.0  # seconds; a look at the latest after so long, in case that a message was missed
SHORTEST, LONGEST = 0.02, 0.5  # seconds between two looks of a waiter whom nobody tells
GROWTH = 1.5
DIGITS = 19  # of the largest fence
LEAST = 0.005  # seconds; a lease that is ending now was perhaps just extended


class _Waiter:
    __slots__ = ("looks", "wakeup")

    def __init__(self, wakeup: Any) -> None:
        self.wakeup = wakeup
        self.looks = 0


class Waiters:
    """The waiting claims of one store."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        # Re-entrant: the garbage collector may release a grant in the middle of any of these steps.
        self._mutex = threading.RLock()
        self._waiters: dict[str, _Waiter] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def add(self, id: str, wakeup: Any) -> None:
        """Note a claim that waits, before it stands in line: what is told to it may come before the answer."""
        with self._mutex:
            waiter = self._waiters.get(id)
            if waiter is None:
                self._waiters[id] = _Waiter(wakeup)
            else:
                waiter.wakeup = wakeup

    def remove(self, id: str) -> None:
        """Forget a claim that waits no more."""
        self._waiters.pop(id, None)

    def tell(self, id: str, fence: int) -> None:
        """Tell a claim that it holds the lock with `fence`; with 0, that it should look."""
        waiter = self._waiters.get(id)
        if waiter is not None:
            waiter.wakeup.tell(Granted(id, fence) if fence else None)

    def tell_message(self, text: str) -> None:
        """Tell what another process said: an id and a fence."""
        id, _, fence = text.partition(" ")
        if fence.isdecimal() and len(fence) <= DIGITS:  # else it is not from us
            self.tell(id, int(fence))

    def let_all_look(self) -> None:
        """Let everybody look: what was said meanwhile was not heard."""
        for waiter in list(self._waiters.values()):
            waiter.wakeup.tell()

    def pause(self, id: str, lease: float | None, hears: bool, before: int = 0) -> float:
        """Return the seconds until a waiter's next look.

        Args:
            id: the claim.
            lease: seconds until the first lease before it ends, if nobody extends it.
            hears: whether it is told when its turn comes; if not, it looks often, and less often each time.
            before: how many wait before it, which are let in first.
        """
        most = LOOK_AGAIN
        waiter = self._waiters.get(id)
        if not hears:
            looks = waiter.looks if waiter is not None else 0
            most = min(LONGEST, SHORTEST * (1 + before) * GROWTH**looks)
            if waiter is not None:
                waiter.looks = min(looks + 1, 20)
        if lease is not None:
            most = min(most, max(LEAST, lease))
        return most * random.uniform(1.0, 1.1)
