"""What clients raise, as errors of this library, with advice; by the names of classes, so no client is imported."""

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


_ADVICE = (
    ("wrongtype", "the key holds no string, so another program uses it for something else: choose another key"),
    ("oom command", "the server is full (maxmemory): give it more memory, or let it evict keys"),
    ("read only replica", "this server is a read-only replica: connect to the primary (Sentinel: master_for)"),
    ("readonly", "this server is a read-only replica: connect to the primary (Sentinel: master_for)"),
    ("masterdown", "this replica has lost its primary: connect to the primary (Sentinel: master_for)"),
    ("noreplicas", "the server wants more replicas before it writes (min-replicas-to-write)"),
    ("misconf", "the server does not write because it can't save to its disk: see its log"),
    ("moved ", "this server is part of a Cluster: use a client for Clusters"),
    (
        "transaction is deprecated",
        "this client knows no transactions on a Cluster: use a KeyLock, or redis-py 6 or newer",
    ),
    ("busy", "a script blocks the server: wait, or SCRIPT KILL"),
)
_BY_CLASS = {
    "AuthenticationError": "wrong user or password, or none: see how the client was made",
    "AuthorizationError": "this user may not connect: see how the client was made",
    "MaxConnectionsError": "all connections of the client's pool are in use: raise its max_connections",
    "OutOfMemoryError": _ADVICE[1][1],
    "ReadOnlyError": _ADVICE[2][1],
    "MovedError": "this server is part of a Cluster: use a client for Clusters",
    "AskError": "this server is part of a Cluster: use a client for Clusters",
    "ClusterDownError": "the Cluster does not serve this key now: see CLUSTER INFO",
    "NoPermissionError": "the user may not: allow it (ACL SETUSER), and get, del and pexpire to scripts",
}
_BEFORE_SENDING = {"AuthenticationError", "AuthorizationError", "MaxConnectionsError"}
_FORBIDDEN = ("NOPERM", "ACL failure in script", "user executing the script can't")
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
    if names & _BEFORE_SENDING or "Too many connections" in text:
        return StoreError(f"{what}; {_advice(names | {'MaxConnectionsError'}, text)}")
    if "TimeoutError" in names:
        return UnknownOutcome(f"{what}; the server did not answer in time, and may have done it or not: try again")
    if "BusyLoadingError" in names:
        return UnknownOutcome(f"{what}; the server has just been started: try again in a moment")
    if names & {"ConnectionError", "OSError"}:
        if "connecting to" in text:
            return UnknownOutcome(f"{what}; the server can't be reached: does it run, and is the address right?")
        return LostReply(f"{what}; the connection broke, and it may have been done or not: try again")
    if _is_unknown(text):
        return NotHere(f"{what}; this server does not have it", lasts=True, forbidden=False)
    if "NoPermissionError" in names or any(words in text for words in _FORBIDDEN):
        return NotHere(f"{what}; {_BY_CLASS['NoPermissionError']}", lasts=True, forbidden=True)
    if "OutOfMemoryError" in names or text.startswith("OOM"):
        return NotHere(f"{what}; {_ADVICE[1][1]}", lasts=False, forbidden=False)
    if names & _CLIENTS:
        return StoreError(f"{what}; {_advice(names, text)}")
    return None


def _is_unknown(text: str) -> bool:
    """Tell whether the server, or the Cluster's client, does not know a command or one of its options."""
    lowered = text.lower()
    return "unknown command" in lowered or "syntax error" in lowered or "command doesn't exist" in lowered


def _advice(names: set[str], text: str) -> str:
    for name, advice in _BY_CLASS.items():
        if name in names:
            return advice
    lowered = text.lower()
    return next((advice for begin, advice in _ADVICE if begin in lowered), "see the server's log")
