"""Cancellation of a waiting acquire."""

from typing import Protocol

from interlock.core.errors import InvalidArgument
from interlock.core.queue import AcquireCall, Wakeable


class SupportsIsSet(Protocol):
    """An object that can cancel an acquire: a `Cancel`, or the event of another library."""

    def is_set(self) -> bool:
        """Return True if it was set."""


class Cancel:
    """Ends calls of `acquire(cancel=…)` from any thread: they return None immediately."""

    def __init__(self) -> None:
        self._is_set = False
        self._calls: dict[int, AcquireCall[Wakeable]] = {}

    def set(self) -> None:
        """End all waiting calls, and all later calls."""
        self._is_set = True  # in this order, because a call that joins checks the flag afterwards
        for call in list(self._calls.values()):
            call.give_up()

    def is_set(self) -> bool:
        """Return True if it was set."""
        return self._is_set

    def join(self, call: AcquireCall[Wakeable]) -> None:
        """Register a call that this object can cancel."""
        self._calls[id(call)] = call
        if self._is_set:
            call.give_up()

    def leave(self, call: AcquireCall[Wakeable]) -> None:
        """Forget a call that has ended."""
        self._calls.pop(id(call), None)


def checked_cancel(cancel: SupportsIsSet) -> SupportsIsSet:
    """Return the object if it can cancel an acquire, else raise InvalidArgument."""
    if not callable(getattr(cancel, "is_set", None)):
        raise InvalidArgument("cancel must be an interlock.Cancel, a threading.Event, or have is_set().")
    return cancel
