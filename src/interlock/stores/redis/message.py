"""What goes over a wire, and what can go wrong there."""

from typing import NamedTuple

from interlock.errors import StoreError, UnknownOutcome


class Message(NamedTuple):
    """One command.

    Attributes:
        command: as it is sent.
        line: the key that says which node of a cluster it goes to.
        owner: the claim that it is about: if no answer comes, what is said next about this claim goes the same way,
            so that it can't overtake.
        last: True if nothing will be said about this claim after it; if it has a connection on which no answer came,
            the command goes there, and nobody waits for its reply.
        patience: seconds to wait for the reply; None for the connection's own.
    """

    command: bytes
    line: str
    owner: str | None = None
    last: bool = False
    patience: float | None = None


class Unreachable(StoreError):
    """No connection: nothing was sent."""


class Broken(UnknownOutcome):
    """The connection ended before the reply came."""


class NoAnswer(UnknownOutcome):
    """The reply did not come in time."""


def unreachable(where: str, error: BaseException) -> StoreError:
    """Return the error of a connection that could not be made."""
    names = {base.__name__ for base in type(error).__mro__}
    text = str(error) or type(error).__name__
    if any(word in text.lower() for word in ("closed", "reset", "lost")):
        return broken(where, error)  # it was there a moment ago: worth another try
    if "AuthenticationError" in names or "WRONGPASS" in text or "NOAUTH" in text or "unauthenticated" in text:
        advice = "user name or password is wrong: give them in the URL (redis://user:password@host) or to the client"
    elif "SSL" in text or "certificate" in text.lower():
        advice = "look at the TLS settings (rediss://…?ssl_ca_certs=FILE)"
    else:
        advice = "is it running, and are host, port and password right?"
    return Unreachable(f"can't connect to {where}: {text}; {advice}")


def no_answer(where: str, seconds: float) -> NoAnswer:
    """Return the error of a reply that did not come."""
    return NoAnswer(f"{where} did not answer within {seconds:g} s: is it stopped, overloaded or cut off?")


def broken(where: str, error: BaseException | None) -> Broken:
    """Return the error of a connection that ended."""
    return Broken(f"the connection to {where} ended before the answer came: {error or 'closed by the server'}")
