"""The waiting claims of one store in this process, and what wakes each; the base of every store's own registry."""

import threading
from typing import Any

from interlock.core.queue import Granted


class WaiterRegistry:
    """What wakes each waiting claim, by the claim's id.

    What wakes is an object with `tell(message)`: a wake-up of the store, or what a store keeps about a waiter.
    """

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        # Re-entrant: the garbage collector may release a grant in the middle of any of these steps.
        self._mutex = threading.RLock()
        self._waiters: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    @property
    def ids(self) -> list[str]:
        """The claims that wait."""
        return list(self._waiters)

    def notify(self, id: str, fence: int) -> bool:
        """Tell a claim that it holds the lock with `fence`; with 0, that it should look.

        Returns:
            False if it does not wait here.
        """
        waiter = self._waiters.get(id)
        if waiter is not None:
            waiter.tell(Granted(id, fence) if fence else None)
        return waiter is not None

    def wake_all(self) -> None:
        """Let everybody look: what was said meanwhile was not heard."""
        for waiter in list(self._waiters.values()):
            waiter.tell(None)
