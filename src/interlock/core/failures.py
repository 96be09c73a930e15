"""Failures between this process and a server; their class decides what a queue does."""

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import Outage

RECOVERY_LIMIT = 60.0  # seconds to wait for an unavailable store without a caller's limit; a fail-over takes 15 to 30
FIRST_CONTACT = 2.0  # seconds; until a request has succeeded, the address is probably wrong


class Refused(StoreError):
    """The server refused the request; nothing was done, and the connection is good.

    Attributes:
        code: the server's code of the error.
        is_unavailable: True if the refusal means that the server is unavailable.
    """

    code = ""
    is_unavailable = False


class TransientRefusal(Refused):
    """The server refuses now, but may accept the request soon.

    Attributes:
        needs_operator: True if an operator must act first; then only claims in line keep waiting.
    """

    needs_operator = False


class NoRoom(TransientRefusal):
    """No connection is free, here or at the server; nothing was sent."""


class Unreachable(StoreError):
    """The connection failed; nothing was sent."""


class Denied(Unreachable):
    """Authentication or TLS failed; a retry will not help."""


class ConnectionEnded(UnknownOutcome):
    """The connection ended before the reply came."""


class NoAnswer(UnknownOutcome):
    """The reply did not come in time; it may come late, or never."""


def closed() -> StoreError:
    """Return the error of a closed connection."""
    return StoreError("This connection is closed. Call connect() again.")


def no_answer(where: str, seconds: float) -> NoAnswer:
    """Return the error of a reply that did not come within `seconds`."""
    return NoAnswer(
        f"No reply from {where} within {seconds:g} s. "
        "Check that the server is running, not overloaded, and reachable."
    )


def ended(where: str, error: BaseException | None = None) -> ConnectionEnded:
    """Return the error of a connection that ended."""
    return ConnectionEnded(
        f"The connection to {where} ended before the reply came: {error or 'closed by the server'}."
    )


def no_room(where: str, most: int, seconds: float) -> NoRoom:
    """Return the error if all connections were in use for `seconds`."""
    return NoRoom(
        f"All {most} connections to {where} were in use for {seconds:.1f} s. Check the load of the server, or "
        f"raise ?max_connections=."
    )


def outage(error: StoreError, ttl: float, answered: bool) -> Outage:
    """Return how long a caller without a limit waits for an unavailable store.

    Args:
        error: the error of the store.
        ttl: the lease of the caller's claim, in seconds.
        answered: True if the store has answered any request.
    """
    return Outage(error, max(RECOVERY_LIMIT, ttl) if answered else FIRST_CONTACT)
