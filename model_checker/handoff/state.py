"""The state of the world of the hand-off."""

from __future__ import annotations

from typing import Any, NamedTuple

from interlock.core.line import Line
from model_checker.handoff.configurations import Configuration

Table = tuple[
    tuple[str, ...],
    tuple[tuple[str, tuple[str, ...]], ...],
    tuple[tuple[str, tuple[str, int, tuple[str, ...]]], ...],
    tuple[tuple[str, str], ...],
    tuple[tuple[str, str, bool], ...],
]
"""The registry of a process: the waiters; the holders, each with the predecessors that have left and have no answer;
the successor of each claim, with those that gave up between the two; the claim before it; and what has no answer."""


class Caller(NamedTuple):
    """A caller, which acquires and releases.

    Attributes:
        phase: "idle", "asked", "waiting", "looking", "inside", "reading" (after a downgrade), "leaving", "giving up",
            "completing", "detaching", "attaching", "done" or "dead".
        id: the id of its claim.
        word: the fence of which it was notified; 0 for none.
    """

    phase: str = "idle"
    id: str = ""
    word: int = 0


class Forgotten(NamedTuple):
    """The claims that are affected by a server that lost its data.

    Attributes:
        ids: claims that the server has lost.
        promised: those of them that were let in locally, and were never holders in the server.
        doubted: claims whose holders must ask the server at once.
    """

    ids: frozenset[str] = frozenset()
    promised: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()


class State(NamedTuple):
    """A state of the world.

    Attributes:
        line: the line in the server.
        tables: the registry of each process.
        callers: all callers.
        net: messages in transit: requests of each claim in order, replies and notifications in any order.
        over: claims whose leases have expired by their own clocks.
        evicted: claims that were evicted, and may not know it yet.
        forgotten: the claims that the server has lost, and the consequences.
        tokens: the tokens of detached claims: unused, and used.
        last: the highest fence of a claim that entered the critical section.
        left: the faults that may still happen.
        wrong: the finding.
    """

    line: Line
    tables: tuple[Table, ...]
    callers: tuple[Caller, ...]
    net: tuple[tuple[Any, ...], ...]
    over: frozenset[str]
    evicted: frozenset[str]
    forgotten: Forgotten
    tokens: tuple[tuple[str, ...], tuple[str, ...]]
    last: int
    left: Configuration
    wrong: str = ""
