"""The state of the world of the file store: the files, what may still happen, the callers."""

from __future__ import annotations

from typing import Any, NamedTuple

from interlock.core.line import Place
from proof.files.steps import Files

NAMES = "ABCDEFGH"
SILENT, LOOK = "", "\n"  # what a wake-up pipe says when it was not rung, and when it told to look; else an id
LIVE, ENDED, SENT, SENT_ENDED, SENT_BOTH = "live", "over", "sent", "sent, over", "sent, both over"
HOLDING = frozenset({LIVE, SENT})
COME, CLOCK, RENEW = "come", "clock", "renew"  # actors that owe nobody a step
BEGIN, FAULT = "begin", "fault"


class Caller(NamedTuple):
    """One caller.

    `local`: where it stands in its protocol; `id`: of its claim; `wake-up pipe`: what its wake-up pipe says, None if
    it has none; `watched`: the processes whose death wakes it; `lease`: whether its own deadline has passed, and,
    while it renews, the one that it will have.
    """

    local: int
    id: str = ""
    pipe: str | None = None
    watched: frozenset[int] = frozenset()
    lease: str = LIVE
    timed_out: bool = False
    evicted: bool = False
    dead: bool = False


class Budget(NamedTuple):
    """What may still happen."""

    kills: int
    lapses: int
    evictions: int
    cancels: int
    interrupts: int


State = tuple[Any, ...]
"""The files, what is wrong with the last step, the budget, then the callers."""


def with_caller(state: State, number: int, caller: Caller) -> State:
    """Return the state with another caller in one place."""
    return (*state[: 3 + number], caller, *state[4 + number :])


def with_files(state: State, files: Files, wrong: str | None = None) -> State:
    """Return the state with other files, and what is wrong with the step that made them."""
    return (files, wrong or state[1], *state[2:])


def spent(state: State, what: str) -> State:
    """Return the state in which one thing less may happen."""
    budget: Budget = state[2]
    return (*state[:2], budget._replace(**{what: getattr(budget, what) - 1}), *state[3:])


def with_lease(files: Files, id: str, until: int) -> Files:
    """Return the files with the lease of a claim set, unless it is shorter already."""
    return files._replace(
        slots=tuple(
            slot._replace(until=min(slot.until, until)) if isinstance(slot, Place) and slot.id == id else slot
            for slot in files.slots
        )
    )


def enters(name: str) -> str:
    """Return the tag of the step by which a caller comes to hold the lock."""
    return f"{name} enters"


def fence_of(id: str) -> Any:
    """Return what a caller is told as the fence of a claim: a name that shows whose it is."""
    return f"the fence of {id}"
