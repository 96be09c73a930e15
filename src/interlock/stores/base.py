"""What a store is: a Queue, with wake-ups in both colours, checks, and an end."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from interlock.core.claims import Check, Claim
from interlock.core.effects import TaskWakeup, ThreadWakeup
from interlock.core.queue import EnterResult, Queue


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


def frees_at_death(store: Store) -> bool:
    """Tell whether the claims of a process end with it, so that nothing need be released at its exit.

    A store says so by an attribute of that name; without it, claims last until their leases end.
    """
    return bool(getattr(store, "frees_at_death", False))


def report_doubts(store: Store, doubt: Callable[[str], object]) -> None:
    """Let a store say which claims it may not have any more, so that whoever holds them asks at once.

    A store that can say so has an attribute `doubt`, which is called with the id of the claim.
    """
    if hasattr(store, "doubt"):
        store.doubt = doubt


def rester(store: Queue) -> Callable[[], object]:
    """Return the store's `rest`, which is called when nothing was held for a while; it gives up what it can."""
    return getattr(store, "rest", None) or _no_rest


def _no_rest() -> None:
    pass


def nodes_of(store: Queue) -> Callable[[Claim], object] | None:
    """Return what tells which of a store's nodes keeps a claim: what is of different nodes is renewed side by side.

    A store of several servers has a method `node_of`, which is quick and does not fail.
    """
    return getattr(store, "node_of", None)


EnterNow: TypeAlias = Callable[[Claim, Any, bool, bool], EnterResult]
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
