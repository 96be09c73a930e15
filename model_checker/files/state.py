"""The state of the world of the file store: the files, the faults that are left, the callers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from interlock.core.line import QueuedClaim
from model_checker.files.steps import Files

NAMES = "ABCDEFGH"
SILENT, LOOK = "", "\n"  # the content of a wake-up pipe: empty, or "look"; else the id of a granted claim
LIVE, ENDED, SENT, SENT_ENDED, SENT_BOTH = "live", "over", "sent", "sent, over", "sent, both over"
HOLDING = frozenset({LIVE, SENT})
COME, CLOCK, RENEW = "come", "clock", "renew"  # actors to which the scheduler need not be fair
BEGIN, FAULT = "begin", "fault"


class Caller(NamedTuple):
    """One caller.

    `local`: its local state in the automaton; `id`: the id of its claim; `pipe`: the content of its wake-up pipe,
    None if it has none; `watched`: the processes whose death wakes it; `lease`: whether its own deadline has passed,
    and, while it renews, the deadline that it will have.
    """

    local: int
    id: str = ""
    pipe: str | None = None
    watched: frozenset[int] = frozenset()
    lease: str = LIVE
    timed_out: bool = False
    evicted: bool = False
    dead: bool = False


State = tuple[Any, ...]
"""The files, what is wrong with the last step, a configuration with the faults that are left, then the callers."""


def with_caller(state: State, number: int, caller: Caller) -> State:
    """Return the state with another caller in one place."""
    return (*state[: 3 + number], caller, *state[4 + number :])


def with_files(state: State, files: Files, wrong: str | None = None) -> State:
    """Return the state with other files, and what is wrong with the step that made them."""
    return (files, wrong or state[1], *state[2:])


def spent(state: State, what: str) -> State:
    """Return the state in which a fault may happen once less."""
    return (*state[:2], replace(state[2], **{what: getattr(state[2], what) - 1}), *state[3:])


def with_lease(files: Files, id: str, until: int) -> Files:
    """Return the files with the lease of a claim set, unless it is shorter already."""
    return files._replace(
        slots=tuple(
            slot._replace(until=min(slot.until, until)) if isinstance(slot, QueuedClaim) and slot.id == id else slot
            for slot in files.slots
        )
    )


def enters(name: str) -> str:
    """Return the tag of the step by which a caller becomes a holder."""
    return f"{name} enters"


def fence_of(id: str) -> Any:
    """Return the fence of a claim in this world: a name that contains the id."""
    return f"the fence of {id}"
