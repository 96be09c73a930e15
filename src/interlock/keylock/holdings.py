"""Which owner holds what by which token: the memory of the locks of this process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from interlock.runtime.clock import awake_or_not
from interlock.runtime.process import checked_pid

MANY = 64
"""So many holdings are kept before those that have lapsed are cleared away."""


class Holding:
    """One acquisition.

    Attributes:
        key: what is held.
        token: what stands in the key as long as it is held.
        deadline: when the lease ends, on the clock that also counts suspended time; None if it does not, or nobody
            knows.
        owner: the thread or task that holds it; None if any may speak for it.
        pid: the process; a forked child is another one, however it was forked.
        count: how many times it was acquired (re-entrant locks).
        left: None, unless it was perhaps released already: that was asked for, and no answer came.  Then True if that
            was before the deadline.
        over: True when the server has said that it does not exist any more.
        lost: True if it ended before it was released.
    """

    __slots__ = ("count", "deadline", "key", "left", "lost", "over", "owner", "pid", "token")

    def __init__(self, key: bytes, token: bytes, deadline: float | None, owner: object) -> None:
        self.key = key
        self.token = token
        self.deadline = deadline
        self.owner = owner
        self.pid = checked_pid()
        self.count = 1
        self.left: bool | None = None
        self.over = self.lost = False

    @property
    def alive(self) -> bool:
        """Is it held, as far as this process can know without asking?"""
        return self.expires_in != 0

    @property
    def expires_in(self) -> float | None:
        """Seconds until the lease ends; None without a limit."""
        if self.over or self.lost:
            return 0.0
        return None if self.deadline is None else max(0.0, self.deadline - awake_or_not())


@dataclass(slots=True)
class Attempt:
    """One call of acquire, and what came of it: known even to a caller that was interrupted.

    Attributes:
        owner: who will hold the lock.
        seconds: how long to wait at most; None for no limit.
        ttl: seconds of lease; None for no limit.
        pauses: seconds between the tries.
        token: chosen by the caller, so that others may use it too; None for random ones.
        holding: what was obtained.
    """

    owner: object
    seconds: float | None
    ttl: float | None
    pauses: Iterator[float]
    token: bytes | None = None
    holding: Holding | None = None


class Holdings:
    """The holdings of one lock object, or of all re-entrant ones of a server; any thread may use it."""

    def __init__(self) -> None:
        self._held: dict[tuple[object, bytes], Holding] = {}

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

    def find(self, owner: object, key: bytes, inherits: Callable[[object], bool]) -> Holding | None:
        """Return what `owner` holds, else what belongs to nobody, else what it inherits.

        Args:
            owner: a thread or a task; None if the lock does not tell them apart.
            key: what is held.
            inherits: whether `owner` may speak for the owner that it gets.
        """
        here = checked_pid()
        for each in (owner, None):
            mine = self._held.get((each, key))
            if mine is not None and mine.pid == here:
                return mine
        left = [each for each in self._held.copy().values() if each.key == key and each.pid == here]
        left = [each for each in left if inherits(each.owner)]
        return next((each for each in left if each.alive), left[-1] if left else None)

    def remove(self, holding: Holding) -> None:
        """Forget one."""
        index = holding.owner, holding.key
        if self._held.get(index) is holding:
            self._held.pop(index, None)
