"""Which owner holds what by which token: the memory of the locks of this process."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from interlock.runtime.process import pid

MANY = 64
"""So many holdings are kept before those that have lapsed are cleared away."""


class Holding:
    """One acquisition.

    Attributes:
        key: what is held.
        token: what stands in the key as long as it is held.
        deadline: when the lease ends, on the monotonic clock; None if it does not, or nobody knows.
        owner: the thread or task that holds it; None if any may speak for it.
        pid: the process; a forked child is another one.
        count: how many times it was acquired (re-entrant locks).
        unsure: True if it was perhaps released already: that was asked for, and no answer came.
        left_in_time: True if its release was asked for before the deadline.
        over: True when the server has said that it does not exist any more.
        lost: True if it ended before it was released.
    """

    __slots__ = ("count", "deadline", "key", "left_in_time", "lost", "over", "owner", "pid", "token", "unsure")

    def __init__(self, key: bytes, token: bytes, deadline: float | None, owner: Any) -> None:
        self.key = key
        self.token = token
        self.deadline = deadline
        self.owner = owner
        self.pid = pid()
        self.count = 1
        self.unsure = False
        self.left_in_time = False
        self.over = False
        self.lost = False

    @property
    def alive(self) -> bool:
        """Is it held, as far as this process can know without asking?"""
        return not (self.over or self.lost) and (self.deadline is None or monotonic() < self.deadline)

    @property
    def expires_in(self) -> float | None:
        """Seconds until the lease ends; None without a limit."""
        if self.over or self.lost:
            return 0.0
        return None if self.deadline is None else max(0.0, self.deadline - monotonic())


class Holdings:
    """The holdings of one lock object, or of all re-entrant ones of a server; any thread may use it."""

    def __init__(self) -> None:
        self._held: dict[tuple[Any, bytes], Holding] = {}

    def add(self, holding: Holding) -> None:
        """Keep a new one; one of the same owner and key that was not released has been lost."""
        old = self._held.get((holding.owner, holding.key))
        if old is not None:
            old.over = old.lost = True
        self._held[holding.owner, holding.key] = holding
        if len(self._held) > MANY:
            for each in self._held.copy().values():
                if not each.alive:
                    self.remove(each)

    def find(self, owner: Any, key: bytes, inherits: Callable[[Any], bool]) -> Holding | None:
        """Return what `owner` holds, else what belongs to nobody, else what it inherits.

        Args:
            owner: a thread or a task; None if the lock does not tell them apart.
            key: what is held.
            inherits: whether `owner` may speak for the owner that it gets.
        """
        for each in (owner, None):
            mine = self._held.get((each, key))
            if mine is not None and mine.pid == pid():
                return mine
        found = None
        for other in self._held.copy().values():
            if other.key == key and other.pid == pid() and inherits(other.owner):
                if other.alive:
                    return other
                found = other
        return found

    def remove(self, holding: Holding) -> None:
        """Forget one."""
        index = holding.owner, holding.key
        if self._held.get(index) is holding:
            self._held.pop(index, None)
