"""What a world is like: the callers, the store's habits, the clock's, and how much may go wrong."""

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


class Listing(Enum):
    """How a list of records is read."""

    WHOLE = "at once"
    SCAN = "record by record"
    PENDINGS_FIRST = "two folders, pendings first"
    USINGS_FIRST = "two folders, usings first"


class Update(Enum):
    """When an update of a record takes effect."""

    UNEXPIRED = "unless expired"
    THERE = "unless gone"
    UPSERT = "always: writes the record again"


class Move(Enum):
    """How pending becomes using."""

    AT_ONCE = "one change"
    CREATE_THEN_DELETE = "created as using, then deleted as pending"
    DELETE_THEN_CREATE = "deleted as pending, then created as using"


class Fence(Enum):
    """Where fences come from."""

    NONE = "none (runs without end)"
    ISSUED = "a counter in the promoting step"
    DRAWN = "a counter, drawn before the promotion"
    HIGHEST_SEEN = "1 + the highest fence in the records"


@dataclass(frozen=True, slots=True)
class Options:
    """One world.

    Attributes:
        terms: (units, capacity) of each caller.
        ordered: a new record comes last in the order; otherwise anywhere (random keys, skewed clocks).
        listing, update, renewal, move, fence: the store's habits.
        reaps_live: a reap removes the record whether or not it is still expired.
        by_name: a caller that releases removes every using record of the name.
        same_id: a caller that starts again uses its old id.
        leases: own deadlines may pass, then records may expire.
        bad_clock: the store may let a record expire at any time.
        heartbeats: holders renew; an answer that comes late counts as the watchdog counts it.
        revives: the holder takes a late answer as a fresh lease even where the store renews what has expired.
        crashes, lost, lapses, cancels: how many callers die, requests stay unanswered, leases end too early,
            calls are broken off; None: any number.
        flying: how many requests without a sender may be under way.
        timeouts: the time of a call may be over whenever it asks.
        wait: False for one try.
        attempts: how often each caller comes; None: for ever.
        stepwise: a look at the own clock is a step of its own.
        steps: `core.line`, as it is or changed, if the store does a step on a line as a whole; None for a register.
        busy: such a store may be busy.
        gives_up: a new claim that had no answer is given up, as on a server; else it is asked again.
        exclusion: check that no two incompatible callers hold the lock.
        one_using: check that no two incompatible, unexpired using records are in the store.
    """

    spec: tuple[tuple[int, int], ...] = (EXCLUSIVE, EXCLUSIVE)
    ordered: bool = False
    listing: Listing = Listing.WHOLE
    update: Update = Update.UNEXPIRED
    renewal: Update = Update.UNEXPIRED
    move: Move = Move.AT_ONCE
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
    flying: int = 1
    timeouts: bool = False
    wait: bool = True
    attempts: int | None = None
    stepwise: bool = False
    steps: Any = None
    busy: bool = False
    gives_up: bool = False
    exclusion: bool = True
    one_using: bool = False


def exclusive(callers: int) -> tuple[tuple[int, int], ...]:
    """The spec of so many callers of an exclusive lock."""
    return (EXCLUSIVE,) * callers


def semaphore(callers: int, permits: int, units: int = 1) -> tuple[tuple[int, int], ...]:
    """The spec of so many callers of a semaphore."""
    return ((units, permits),) * callers
