"""Events of claims, for listeners; without listeners no event is created."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from interlock.core.claims import shown_value
from interlock.core.errors import InvalidArgument

EventKind: TypeAlias = Literal[
    "queued", "acquired", "renewed", "renewal failed", "lost", "released", "evicted", "timed out", "withdrawn"
]


class Event(NamedTuple):
    """An event of a claim.

    Attributes:
        kind: "queued" (it waits in line), "acquired", "renewed", "renewal failed" (it is retried), "released";
            "lost" (reported by its holder); "evicted" (reported by the caller of `evict`); "timed out"; "withdrawn"
            (a waiter was cancelled or interrupted, its claim was gone, or the store failed).
        name: the lock's name, without its namespace.
        id: the claim's id.
        fence: the fencing token of a holder; None for a waiter, or if unknown.
        label: the lock's label.
        waited: seconds since the call of acquire; None for an event without such a call.
        held: seconds since the acquisition; None if the lock was not acquired, or without a listener at that time.
        reason: the cause of a loss, a withdrawal, a failed renewal or a takeover; otherwise empty.
    """

    kind: EventKind
    name: str
    id: str
    fence: int | None
    label: str
    waited: float | None
    held: float | None
    reason: str = ""


Listener: TypeAlias = Callable[[Event], object]
Listeners: TypeAlias = dict[object, Listener]
"""Listeners by the object that identifies each subscription."""
GLOBAL_LISTENERS: Listeners = {}
"""The listeners of all connections of the process."""


def subscribe(function: Listener) -> Callable[[], None]:
    """Call `function` with each event of every connection of this process.

    Args:
        function: takes an `Event`; see `Locks.subscribe`.

    Returns:
        A function that ends the subscription; safe to repeat.

    Raises:
        InvalidArgument: the function is not callable.
    """
    return listen(GLOBAL_LISTENERS, function)


def listen(listeners: Listeners, function: Listener) -> Callable[[], None]:
    """Add a listener; return the function that removes it.

    Raises:
        InvalidArgument: the listener is not callable.
    """
    if not callable(function):
        raise InvalidArgument(
            f"A listener must be a function of one argument, the event, not {shown_value(function)}."
        )
    subscription = object()
    listeners[subscription] = function

    def unsubscribe() -> None:
        listeners.pop(subscription, None)

    return unsubscribe
