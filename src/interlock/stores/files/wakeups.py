"""How the waiters of a queue wake: `pipes` or `loopback`."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Protocol

from interlock.core.line import QueuedClaim
from interlock.runtime.waiters import Waiters


class FileWaiter:
    """A waiter that other processes notify, and that the death of a process wakes."""

    __slots__ = ()

    def channel(self) -> str:
        """Return the number by which other processes notify the waiter; "" if they cannot."""
        raise NotImplementedError

    def watch(self, tokens: Iterable[str]) -> None:
        """Let the death of exactly these processes wake the waiter, by their liveness tokens."""
        raise NotImplementedError


class Wakeups(Protocol):
    """The notifications of a queue.

    Attributes:
        waiters: the waiting claims.
    """

    waiters: Waiters

    @abstractmethod
    def notify(self, place: QueuedClaim) -> None:
        """Notify a waiter in another process; a failure is ignored, because the waiter polls."""

    @abstractmethod
    def close(self) -> None:
        """Close everything before the liveness file."""

    @abstractmethod
    def forget(self) -> None:
        """Close the descriptors in a forked child."""
