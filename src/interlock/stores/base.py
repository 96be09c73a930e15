"""What a store is: a Queue, with wake-ups in both colours, checks, and an end."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from interlock.claims import Check, Claim
from interlock.effects import TaskWakeup, ThreadWakeup
from interlock.protocols.queue import Queue, Turn


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


EnterNow: TypeAlias = Callable[[Claim, Any, bool, bool], Turn]
LeaveNow: TypeAlias = Callable[[Claim], bool | None]


def shortcuts(store: Store) -> tuple[EnterNow | None, LeaveNow | None]:
    """Return the store's `enter_now` and `leave_now`, if it has them.

    They are `enter` and `leave` of a store whose steps are short calls in this process, without a generator around
    them; `leave_now` answers None when the store is busy and `leave` is to be performed. Only the release of a grant
    calls it: whoever waits, or breaks off, leaves by `leave`.
    """
    if hasattr(type(store), "enter_now") and hasattr(type(store), "leave_now"):
        return store.enter_now, store.leave_now  # type: ignore[attr-defined]
    return None, None
