"""What a store is: a place for lines, which belongs to no process and no event loop, and its queues."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from interlock.core.queue import AsyncQueue, Queue

Feature: TypeAlias = Literal["slot", "once", "detach", "wanted", "readers", "semaphores"]
ALL: frozenset[Feature] = frozenset({"slot", "once", "detach", "wanted", "readers", "semaphores"})


class Store(Protocol):
    """A place for lines, and how to connect to it.

    Attributes:
        features: what of the contract it can do; for the rest it raises Unsupported.
        frees_at_death: True if the claims of a process end with it, so that nothing need be released at its exit.
        in_process: True if its lines are in the memory of this process.
        now: the clock that leases are counted on by their holders, in seconds.
    """

    @property
    def features(self) -> frozenset[Feature]: ...
    @property
    def frees_at_death(self) -> bool: ...
    @property
    def in_process(self) -> bool: ...
    @property
    def now(self) -> Callable[[], float]: ...

    def queue(self) -> Queue:
        """Return a new queue, for the threads of the calling process."""

    def aqueue(self) -> AsyncQueue:
        """Return a new queue, for the tasks of the running event loop."""
