"""What goes over a pool, and what can go wrong there."""

from collections.abc import Iterator
from typing import NamedTuple

from interlock._redis.errors import LOGIN, code_of, refusal
from interlock._redis.resp import ReplyError
from interlock.core.errors import StoreError, UnknownOutcome


class Message(NamedTuple):
    """One command.

    Attributes:
        command: as it is sent.
        line: the key that says which node of a cluster it goes to.
        owner: the claim that it may put into the line, else None: if no answer comes, the connection is kept until
            the claim leaves, so that its leaving can go the same way and is not overtaken.
        io_timeout: seconds to wait for the reply; None for the connection's own.
    """

    command: bytes
    line: str
    owner: str | None = None
    io_timeout: float | None = None


class Unreachable(StoreError):
    """No connection: nothing was sent."""


class Denied(Unreachable):
    """The server is there, and does not let us in: that does not pass."""


class ConnectionEnded(UnknownOutcome):
    """The connection ended before the reply came."""


class NoAnswer(UnknownOutcome):
    """The reply did not come in time."""


def unreachable(where: str, error: BaseException) -> StoreError:
    """Return the error of a connection that could not be made."""
    forbidden = next((each for each in _causes(error) if "no permissions to" in str(each)), None)
    if forbidden is not None:  # it may be hidden behind a wrong guess of the library's
        return refusal(ReplyError(str(forbidden)), where)
    text = str(error) or type(error).__name__
    if any(base.__name__ == "MasterNotFoundError" for base in type(error).__mro__):
        text = text.partition(" : ")[0]  # what follows are the clients of the Sentinels, with all their settings
        return Unreachable(f"can't connect to {where}: {text}; do its Sentinels run, and see a primary that does?")
    if any(word in text.lower() for word in ("closed", "reset", "lost")):
        return broken(where, error)  # it was there a moment ago: worth another try
    if code_of(error) in ("NOAUTH", "WRONGPASS"):
        return Denied(f"can't connect to {where}: {text}; {LOGIN}")
    if "SSL" in text or "certificate" in text.lower():
        advice = "look at the TLS settings (rediss://…?ssl_ca_certs=FILE)"
        return Denied(f"can't connect to {where}: {text}; {advice}")
    advice = "is it running, and are host, port and password right?"
    return Unreachable(f"can't connect to {where}: {text}; {advice}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def no_answer(where: str, seconds: float) -> NoAnswer:
    """Return the error of a reply that did not come."""
    return NoAnswer(f"{where} did not answer within {seconds:g} s: is it stopped, overloaded or cut off?")


def outdated(where: str) -> ConnectionEnded:
    """Return the error of a reply that came while another server became the primary."""
    return ConnectionEnded(f"{where} is another one since the question was asked: the answer is not believed")


def broken(where: str, error: BaseException | None) -> ConnectionEnded:
    """Return the error of a connection that ended."""
    return ConnectionEnded(
        f"the connection to {where} ended before the answer came: {error or 'closed by the server'}"
    )


def garbled(where: str, found: bytes | ValueError) -> ConnectionEnded:
    """Return the error of an answer that is no reply of Redis; `found` is its beginning, or what the parser says."""
    said = found[:60] if isinstance(found, bytes) else (found.args or ("",))[0]
    return ConnectionEnded(
        f"what answers in the place of {where} does not speak the protocol of Redis: it said {said!r}; are host and "
        f"port right, and what lies between?"
    )
