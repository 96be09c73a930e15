"""What a store is: a Queue, with wake-ups in both colours, checks, and an end."""

from typing import Protocol

from interlock.claims import Check
from interlock.effects import TaskWakeup, ThreadWakeup
from interlock.protocols.queue import Queue


class Store(Queue, Protocol):
    """A Queue that can be connected to by URL."""

    def thread_wakeup(self) -> ThreadWakeup:
        """Return a wake-up for the calling thread."""

    def task_wakeup(self) -> TaskWakeup:
        """Return a wake-up for the calling task."""

    def doctor(self) -> list[Check]:
        """Find out whether this store keeps the promises that the protocol needs."""

    def close(self) -> None:
        """Give up everything that the store keeps open; safe to repeat."""
