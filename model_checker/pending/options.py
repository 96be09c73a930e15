"""The options of a world: the callers, the behaviour of the store and the clocks, and the number of faults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from interlock.core.claims import WRITER_UNITS

NAMES = "ABCDEFGH"
EXCLUSIVE = (1, 1)
READER = (1, WRITER_UNITS)
WRITER = (WRITER_UNITS, WRITER_UNITS)
TTL = 30.0


class Update(Enum):
    """The moment at which an update of a record takes effect."""

    UNEXPIRED = "unless expired"
    THERE = "unless gone"


class Fence(Enum):
    """The source of fences."""

    NONE = "none (runs without end)"
    ISSUED = "a counter in the promoting step"
    DRAWN = "a counter, drawn before the promotion"


@dataclass(frozen=True, slots=True)
class Options:
    """One world.

    Attributes:
        terms: (units, capacity) of each caller.
        ordered: a new record comes last in the order; otherwise anywhere (random keys, skewed clocks).
        update, renewal, fence: the store's behaviour.
        reaps_live: a reap removes the record even if it is not expired any more.
        by_name: a caller that releases removes every using record of the name.
        same_id: a caller that starts again uses its old id.
        leases: own deadlines may pass, and then records may expire.
        bad_clock: the store may let a record expire at any time.
        heartbeats: holders renew; a late reply counts as the watchdog counts it.
        revives: the holder takes a late reply as a new lease even if the store renews expired records.
        crashes, lost, lapses, cancels: the most callers that die, replies that are lost, leases that expire early,
            and calls that are cancelled; None for any number.
        timeouts: the time-out of a call may pass at every check.
        wait: False for one try.
        attempts: the calls of each caller; None for no end.
        stepwise: reading the own clock is a separate step.
        steps: `core.line`, original or changed, if the store performs each step on a line atomically; None for a
            store of records.
        busy: the step store may be busy.
        gives_up: a new claim whose request had no reply is given up, as on a server; otherwise it asks again.
        exclusion: check that no two incompatible callers hold the lock.
        one_using: check that no two incompatible, unexpired using records are in the store.
    """

    spec: tuple[tuple[int, int], ...] = (EXCLUSIVE, EXCLUSIVE)
    ordered: bool = False
    update: Update = Update.UNEXPIRED
    renewal: Update = Update.UNEXPIRED
    fence: Fence = Fence.NONE
    reaps_live: bool = False
    by_name: bool = False
    same_id: bool = False
    leases: bool = False
    bad_clock: bool = False
    heartbeats: bool = False
    crashes: int = 0
    lost: int = 0
    lapses: int | None = None
    cancels: int | None = 0
    timeouts: bool = False
    wait: bool = True
    attempts: int | None = None
    stepwise: bool = False
    steps: Any = None
    busy: bool = False
    gives_up: bool = False
    exclusion: bool = True
    one_using: bool = False


def semaphore(callers: int, permits: int, units: int = 1) -> tuple[tuple[int, int], ...]:
    """The terms of so many callers of a semaphore."""
    return ((units, permits),) * callers
