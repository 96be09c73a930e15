"""What calls off an acquire that waits."""

from typing import Protocol

from interlock.core.errors import InvalidArgument
from interlock.core.queue import AcquireCall


class Cancels(Protocol):
    """What may call off: a `Cancel`, or an event of a library."""

    def is_set(self) -> bool:
        """Tell whether it was set."""


class Cancel:
    """Calls off those who wait in `acquire(cancel=…)`: they leave the line at once and get None; from any thread."""

    def __init__(self) -> None:
        self._is_set = False
        self._calls: dict[int, AcquireCall] = {}

    def set(self) -> None:
        """Call off who waits, and who comes later."""
        self._is_set = True  # in this order: who joins looks at it afterwards
        for call in list(self._calls.values()):
            call.give_up()

    def is_set(self) -> bool:
        """Tell whether it was set."""
        return self._is_set

    def join(self, call: AcquireCall) -> None:
        """Let a call be called off."""
        self._calls[id(call)] = call
        if self._is_set:
            call.give_up()

    def leave(self, call: AcquireCall) -> None:
        """The call has come to its end."""
        self._calls.pop(id(call), None)


def checked_cancel(cancel: Cancels) -> Cancels:
    """Return what calls off, else raise InvalidArgument."""
    if not callable(getattr(cancel, "is_set", None)):
        raise InvalidArgument("cancel is an interlock.Cancel, a threading.Event, or another object with is_set()")
    return cancel
