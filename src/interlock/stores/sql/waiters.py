"""The waiters of this process, by claim, and how long until each looks again by itself."""

import random
from typing import Any

from interlock.runtime.waiters import WaiterRegistry

LOOK_AGAIN = 5.0  # seconds; a look at the latest after so long, in case that a message was missed
SHORTEST, LONGEST = 0.02, 0.5  # seconds between two looks of a waiter whom nobody tells
GROWTH = 1.5
LEAST = 0.005  # seconds; a lease that is ending now was perhaps just extended


class Waiters(WaiterRegistry):
    """The waiting claims of one store, and how often each has looked."""

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        super().start_afresh()
        self._looks: dict[str, int] = {}

    def add(self, id: str, wakeup: Any) -> None:
        """Note a claim that waits, before it stands in line: what is told to it may come before the answer."""
        self._waiters[id] = wakeup

    def remove(self, id: str) -> None:
        """Forget a claim that waits no more."""
        self._waiters.pop(id, None)
        self._looks.pop(id, None)

    def pause(self, id: str, lease: float | None, hears: bool, before: int = 0) -> float:
        """Return the seconds until a waiter's next look.

        Args:
            id: the claim.
            lease: seconds until the first lease before it ends, if nobody extends it.
            hears: whether it is told when its turn comes; if not, it looks often, and less often each time.
            before: how many wait before it, which are let in first.
        """
        most = LOOK_AGAIN
        if not hears:
            looks = self._looks.get(id, 0)
            most = min(LONGEST, SHORTEST * (1 + before) * GROWTH**looks)
            if id in self._waiters:
                self._looks[id] = min(looks + 1, 20)
        if lease is not None:
            most = min(most, max(LEAST, lease))
        return most * random.uniform(1.0, 1.1)
