"""What there is to know about the world of the successors at one moment."""

from __future__ import annotations

from typing import Any, NamedTuple

from interlock.core.line import Line

Table = tuple[
    tuple[str, ...],
    tuple[str, ...],
    tuple[tuple[str, tuple[str, int]], ...],
    tuple[tuple[str, str], ...],
]
"""Of a process: who waits; who holds the lock; who comes after whom; and before."""


class Caller(NamedTuple):
    """One who acquires and releases.

    Attributes:
        phase: where it is: "idle", "asked", "waiting", "looking", "inside", "leaving", "giving up", "done" or "dead".
        id: of its claim.
        word: the fence that it was told, 0 if it was not told.
    """

    phase: str = "idle"
    id: str = ""
    word: int = 0


class Left(NamedTuple):
    """How often each thing may still happen."""

    lapses: int
    evictions: int
    cancels: int
    kills: int
    losses: int
    forgets: int


class Forgotten(NamedTuple):
    """What a server that forgets leaves behind.

    Attributes:
        ids: claims that the server has forgotten.
        promised: those of them that the one before let in, and the server never had as holders.
        doubted: claims whose holders are to ask the server at once.
    """

    ids: frozenset[str] = frozenset()
    promised: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()


class State(NamedTuple):
    """A state of the world.

    Attributes:
        line: what the server knows.
        tables: the registry of each process.
        callers: all of them.
        net: what is under way: requests of each claim in order, replies and messages in any.
        over: claims that are no holders any more by their own clocks.
        evicted: claims that are no holders any more, and need not know it.
        forgotten: what the server has forgotten, and what came of it.
        last: the highest fence that got in.
        left: what may still happen.
        wrong: what went wrong.
    """

    line: Line
    tables: tuple[Table, ...]
    callers: tuple[Caller, ...]
    net: tuple[tuple[Any, ...], ...]
    over: frozenset[str]
    evicted: frozenset[str]
    forgotten: Forgotten
    last: int
    left: Left
    wrong: str = ""
