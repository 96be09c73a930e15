"""Events of claims, for functions that subscribe; without subscribers no event is made."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from interlock.core.claims import shown_value
from interlock.core.errors import InvalidArgument

Kind: TypeAlias = Literal[
    "queued", "acquired", "renewed", "renewal failed", "lost", "released", "evicted", "timed out", "withdrawn"
]


class Event(NamedTuple):
    """What happened to a claim.

    Attributes:
        kind: "queued" (it waits in line), "acquired", "renewed", "renewal failed" (it is tried again), "released";
            "lost", told by its holder; "evicted", told by the caller of `evict`; "timed out"; "withdrawn" (a waiter
            was cancelled or interrupted, its claim was gone, or the store failed).
        name: of the lock, without its namespace.
        id: of the claim.
        fence: the fencing token of a holder; None for a waiter, or if it is not known.
        label: of the lock.
        waited: seconds since the call of acquire; None if the event is not of such a call.
        held: seconds since the lock was acquired; None if it was not, or if there was no listener then.
        reason: why, for a claim that was lost or withdrawn, or whose renewal failed; else empty.
    """

    kind: Kind
    name: str
    id: str
    fence: int | None
    label: str
    waited: float | None
    held: float | None
    reason: str = ""


Listener: TypeAlias = Callable[[Event], object]
Listeners: TypeAlias = dict[object, Listener]
"""Functions by what stands for each subscription."""
EVERYWHERE: Listeners = {}
"""The listeners to all connections of the process."""


def subscribe(function: Listener) -> Callable[[], None]:
    """Let `function` be called with each event of every connection of this process.

    Args:
        function: takes an `Event`; see `Locks.subscribe`.

    Returns:
        What ends that; safe to repeat.

    Raises:
        InvalidArgument: it can't be called.
    """
    return listen(EVERYWHERE, function)


def listen(listeners: Listeners, function: Listener) -> Callable[[], None]:
    """Add `function` to some listeners; return what takes it out again.

    Raises:
        InvalidArgument: it can't be called.
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
