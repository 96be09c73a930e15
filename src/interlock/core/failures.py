"""What can go wrong between this process and a server; the class of an error decides what a queue does about it."""

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import Outage

RECOVERY = 60.0  # seconds to wait for an unavailable store if the caller has set no limit; a fail-over takes 15 to 30
FIRST_CONTACT = 2.0  # seconds; if no request has ever succeeded, the address is probably wrong


class Refused(StoreError):
    """The server answered, and refused; nothing was done, and the connection is good.

    Attributes:
        code: what the server calls it.
        is_away: True if a server that says so counts as unavailable.
    """

    code = ""
    is_away = False


class Passing(Refused):
    """The server refuses now, but may not do so soon.

    Attributes:
        needs_operator: True if an operator must act first: then only claims that are in line already wait for it.
    """

    needs_operator = False


class NoRoom(Passing):
    """No connection is free, here or at the server: nothing was sent."""


class Unreachable(StoreError):
    """No connection: nothing was sent."""


class Denied(Unreachable):
    """Authentication or TLS failed: trying again will not help."""


class ConnectionEnded(UnknownOutcome):
    """The connection ended before the reply came."""


class NoAnswer(UnknownOutcome):
    """The reply did not come in time: it may come late, or never."""


def closed() -> StoreError:
    """Return the error of a connection that the program has closed."""
    return StoreError("this connection was closed: connect again")


def no_answer(where: str, seconds: float) -> NoAnswer:
    """Return the error of a reply that did not come within `seconds`."""
    return NoAnswer(f"{where} did not answer within {seconds:g} s: is it stopped, overloaded or cut off?")


def ended(where: str, error: BaseException | None = None) -> ConnectionEnded:
    """Return the error of a connection that ended."""
    return ConnectionEnded(
        f"the connection to {where} ended before the answer came: {error or 'closed by the server'}"
    )


def no_room(where: str, most: int, seconds: float) -> NoRoom:
    """Return the error of a process all of whose connections were in use for `seconds`."""
    return NoRoom(
        f"all {most} connections to {where} were in use for {seconds:.1f} s: is it overloaded? Else let this process "
        f"have more (?max_connections=)"
    )


def outage(error: StoreError, ttl: float, answered: bool) -> Outage:
    """Return how long a caller without a limit waits for a store that is unavailable.

    Args:
        error: what it said.
        ttl: of the caller's claim, in seconds.
        answered: True if the store has answered any request.
    """
    return Outage(error, max(RECOVERY, ttl) if answered else FIRST_CONTACT)
