"""What clients raise, as errors of this library, with advice; by the names of classes, so no client is imported."""

from interlock._redis.errors import advice_on, code_of, given_code
from interlock.core.errors import LockError, StoreError, UnknownOutcome


class LostReply(UnknownOutcome):
    """The connection broke after a command was, perhaps, sent: worth asking again at once."""


class NotHere(StoreError):
    """This server, or this user, can't do it in this way; another way may work.

    Attributes:
        lasts: True if it will be so the next time too.
        forbidden: True if the user is not allowed to.
    """

    def __init__(self, message: str, lasts: bool, forbidden: bool) -> None:
        super().__init__(message)
        self.lasts = lasts
        self.forbidden = forbidden


_NO_CONNECTION = "all connections of the client's pool are in use: raise its max_connections"
_NO_TRANSACTIONS = "this client knows no transactions on a Cluster: use a KeyLock, or redis-py 6 or newer"
_CLIENTS = {"RedisError", "ValkeyError", "RedisClusterException", "ValkeyClusterException"}


def names_of(error: BaseException) -> set[str]:
    """Return the names of the classes of an exception."""
    return {each.__name__ for each in type(error).__mro__}


def translated(error: Exception, command: str, key: object) -> LockError | None:
    """Return an exception of a client as an error of this library.

    Args:
        error: what the client raised.
        command: the command that it was asked to send.
        key: the key of the lock.

    Returns:
        The error, whose cause is to be `error`; None if it is no failure of the server or of the way to it.
    """
    names, text = names_of(error), str(error)
    what = f"{command} on the key {key!r} failed: {text or type(error).__name__}"
    given, code = given_code(error), code_of(error)
    if given == "NOAUTH":
        return StoreError(f"{what}; {advice_on(given)}")
    if "MaxConnectionsError" in names or "Too many connections" in text:
        return StoreError(f"{what}; {_NO_CONNECTION}")
    if "TimeoutError" in names:
        return UnknownOutcome(f"{what}; the server did not answer in time, and may have done it or not: try again")
    if given == "LOADING":
        return UnknownOutcome(f"{what}; {advice_on(given)}")
    if names & {"ConnectionError", "OSError"}:
        if "connecting to" in text:
            return UnknownOutcome(f"{what}; the server can't be reached: does it run, and is the address right?")
        return LostReply(f"{what}; the connection broke, and it may have been done or not: try again")
    if _is_unknown(text):
        return NotHere(f"{what}; this server does not have it", lasts=True, forbidden=False)
    if not names & _CLIENTS:
        return None
    if code == "NOPERM":
        return NotHere(f"{what}; {advice_on(code)}, and get, del and pexpire to scripts", lasts=True, forbidden=True)
    if given == "OOM":
        return NotHere(f"{what}; {advice_on(given)}", lasts=False, forbidden=False)
    return StoreError(f"{what}; {_NO_TRANSACTIONS if 'transaction is deprecated' in text else advice_on(code)}")


def _is_unknown(text: str) -> bool:
    """Tell whether the server, or the Cluster's client, does not know a command or one of its options."""
    lowered = text.lower()
    return "unknown command" in lowered or "syntax error" in lowered or "command doesn't exist" in lowered
