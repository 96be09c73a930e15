"""The waiting claims of this process, and what wakes each."""

import re

from interlock.core.queue import Granted, Tells
from interlock.runtime.process import WeakRegistry, in_forked_child

DIGITS = 19  # of the largest fence
MESSAGE = re.compile(f"([^ ]*) ([0-9]{{1,{DIGITS}}})(?: ([0-9]{{1,{DIGITS}}}))?")


class Waiters:
    """What wakes each waiting claim, by the claim's id; threads and tasks of several loops may stand here together.

    Each step is one operation of a dictionary: so a signal handler or a finalizer may come in between.

    Attributes:
        by_id: what wakes each; always the same dictionary.
    """

    __slots__ = ("__weakref__", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[str, Tells] = {}
        _all.add(self)

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def __contains__(self, id: str) -> bool:
        return id in self.by_id

    def add(self, id: str, waiter: Tells) -> None:
        """Tell `waiter` what is told to a claim."""
        self.by_id[id] = waiter

    def remove(self, id: str) -> bool:
        """Forget a claim; True if it was there."""
        return self.by_id.pop(id, None) is not None

    def notify(self, id: str, fence: int, slot: int = 0) -> bool:
        """Tell a claim that it holds the lock with `fence`; with 0, that it should look.

        Returns:
            False if it does not wait here.
        """
        waiter = self.by_id.get(id)
        if waiter is not None:
            waiter.tell(Granted(id, fence, slot) if fence else None)
        return waiter is not None

    def hear(self, message: str) -> None:
        """Tell what another process said: "id fence slot"."""
        words = MESSAGE.fullmatch(message)
        if words is not None:  # else it is not from us
            self.notify(words[1], int(words[2]), int(words[3] or 0))

    def wake_all(self) -> None:
        """Let everybody look: what was said meanwhile was not heard."""
        for waiter in list(self.by_id.values()):
            waiter.tell(None)

    def _clear(self) -> None:
        self.by_id.clear()


_all: WeakRegistry[Waiters] = WeakRegistry()


def _after_fork() -> None:
    for waiters in _all:
        waiters._clear()


in_forked_child(_after_fork)
