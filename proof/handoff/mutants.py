"""One safeguard removed at a time: each of these must be caught, or it would not be needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interlock.stores.redis.handoff import Handoff
from interlock.stores.redis.waiters import NextHolder, RedisWaiters
from proof.handoff.configurations import Configuration
from proof.handoff.line import SERVER, Line, Pending, Promoted, Record, Server, enter, hand_over

_CANCEL = Configuration("three of one process, one gives up", (0, 0, 0), cancels=1)
_PLAIN = Configuration("four processes, one is no successor", (0, 1, 2, 3), plain=(1,))
_AGAIN = Configuration("three of one process, one gives up, a message is lost", (0, 0, 0), cancels=1, losses=1)
_LAPSE = Configuration("three of one process, a lease ends", (0, 0, 0), lapses=1)
_FORGET = Configuration("three of one process, the server forgets", (0, 0, 0), forgets=1)
_EVICT = Configuration("three of one process, an eviction", (0, 0, 0), evictions=1)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard removed.

    Attributes:
        name: which one.
        configuration: where it shows.
        expected: a part of what the checker must say is wrong.
        make: makes the registry of a process.
        server: what the server does.
    """

    name: str
    configuration: Configuration
    expected: str
    make: Callable[[], RedisWaiters] = RedisWaiters
    server: Server = SERVER


class _Generous(RedisWaiters):
    """Lets its successor in also where it only waited itself."""

    def withdraw(self, id: str) -> NextHolder | None:  # type: ignore[override]
        return self.pass_on(id)


class _Twice(RedisWaiters):
    """Lets its successor in also where it only waited itself, and has left before."""

    def withdraw(self, id: str) -> None:
        if id in self._waiters and id not in self._granted:
            super().withdraw(id)
        else:
            self.pass_on(id)


class _Trusting(RedisWaiters):
    """Believes in a promise although the server no longer had the claim that made it."""

    def is_void(self, removed: bool) -> bool:
        return False


class _Hoarding(Handoff):
    """Keeps who was the successor before."""

    def follow(self, before: str, id: str, fence: int) -> None:
        self.after[before] = (id, fence)
        self.before[id] = before


def _hoarding() -> RedisWaiters:
    registry = RedisWaiters()
    registry._handoff = _Hoarding()
    return registry


def _names_anybody(line: Line, id: str, again: bool, whole: bool) -> tuple[Line, int | Pending | None, Promoted]:
    """Name a successor behind a waiter that is none."""
    after, answer, promoted = enter(line, id, again, whole)
    if answer != ("", 0) or not line.waiting or not whole or any(each.id == id for each in line.waiting):
        return after, answer, promoted
    before, fence = line.waiting[-1].id, after.fence + 1
    after = after._replace(waiting=(*after.waiting[:-1], Record(id, fence)), fence=fence)
    return after, (before, fence), promoted


def _forgets_the_fence(line: Line, id: str, again: bool, whole: bool) -> tuple[Line, int | Pending | None, Promoted]:
    """A successor that looks is no successor any more."""
    after, answer, promoted = enter(line, id, again, whole)
    if again and isinstance(answer, tuple):
        waiting = tuple(each._replace(fence=0) if each.id == id else each for each in after.waiting)
        after = after._replace(waiting=waiting)
    return after, answer, promoted


def _issues_another(line: Line) -> tuple[Line, Promoted]:
    """A promoted successor gets another fence than the one it was named with."""
    return hand_over(
        line._replace(waiting=tuple(each._replace(fence=0) for each in line.waiting[:1]) + line.waiting[1:])
    )


MUTANTS = (
    Mutant("only a holder lets its successor in", _CANCEL, "hold the lock", make=_Generous),
    Mutant("not even if it leaves a second time", _AGAIN, "hold the lock", make=_Twice),
    Mutant("a new successor takes the place of the old one", _LAPSE, "disagree", make=_hoarding),
    Mutant("a promise is void if the server had forgotten who made it", _FORGET, "is void", make=_Trusting),
    Mutant(
        "successors stand right behind holders or successors",
        _PLAIN,
        "gets in after",
        server=SERVER._replace(enter=_names_anybody),
    ),
    Mutant(
        "a successor that looks keeps its fence",
        _EVICT,
        "gets in after",
        server=SERVER._replace(enter=_forgets_the_fence),
    ),
    Mutant(
        "a promoted successor keeps its fence",
        _EVICT,
        "gets in after",
        server=SERVER._replace(hand_over=_issues_another),
    ),
)
