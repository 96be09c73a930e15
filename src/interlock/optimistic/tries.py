"""How often to try, how long to pause in between, and when to give up."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from interlock.core.errors import StoreError
from interlock.optimistic.errors import Conflict, TryAgain

RETRIES = 16
BACKOFF = 0.002  # seconds: the longest pause after the first conflict
LONGEST_PAUSE = 0.25  # seconds: no pause is longer, however many conflicts there were
SHORTEST_IO_TIMEOUT = 1.0  # seconds that the store may always take for one answer


class Limits(NamedTuple):
    """What the caller allows: retries (None: any number), seconds for all tries (None: any time), first back-off."""

    retries: int | None
    timeout: float | None
    backoff: float


class Tries:
    """The tries of one transaction; knows no clock.

    Args:
        limits: what the caller allows.
        started: now, in seconds of a monotonic clock.
        spread: `spread(low, high)` is a random number between the two.

    Attributes:
        number: which try this is, from 1.
    """

    def __init__(
        self, limits: Limits, started: float, spread: Callable[[float, float], float] = random.uniform
    ) -> None:
        self.number = 1
        self._limits = limits
        self._started = started
        self._deadline = math.inf if limits.timeout is None else started + limits.timeout
        self._spread = spread

    def io_timeout(self, now: float) -> float | None:
        """Return how many seconds the store may take for its next answer; None for as long as its client allows."""
        return None if self._deadline == math.inf else max(self._deadline - now, SHORTEST_IO_TIMEOUT)

    def pause_before_next(self, keys: Sequence[Any], failure: TryAgain | None, now: float) -> float:
        """Count a try that did nothing, and return how many seconds to pause before the next.

        The pause is random from 0 to a bound that doubles with each try ("full jitter"), so that those who were in
        each other's way do not meet again. Source: M. Brooker, "Exponential Backoff And Jitter", AWS, 2015.

        Args:
            keys: what was watched.
            failure: what the store said; None if somebody changed what was watched.
            now: seconds of the clock.

        Raises:
            Conflict: no more tries are allowed.
            StoreError: as above, and the store failed.
        """
        left = self._deadline - now
        if left <= 0 or (self._limits.retries is not None and self.number > self._limits.retries):
            if failure is not None:
                raise StoreError(f"{failure} (in each of {self.number} tries)") from failure
            raise self._conflict(keys, now - self._started)
        bound = min(self._limits.backoff * 2.0 ** min(self.number - 1, 32), LONGEST_PAUSE)
        self.number += 1
        # Half of what is left, so that a last try still fits in before the end.
        return min(self._spread(0.0, bound), left / 2)

    def _conflict(self, keys: Sequence[Any], seconds: float) -> Conflict:
        times = "in the only try" if self.number == 1 else f"in each of {self.number} tries"
        what = ", ".join(map(repr, keys))
        return Conflict(
            f"others changed what was read ({what}) {times} within {seconds:.3g} s, and nothing was done: allow more "
            f"(retries=, timeout=), or if it is changed all the time, guard it by a lock",
            self.number,
            seconds,
            keys,
        )
