"""What clients of redis-py and valkey-py do behind one command: how often they send it, and what they raise.

No library is imported.  That a client encodes the name of a command once for each time that it sends it is not
documented, but it is so in both libraries, for threads and tasks, and in their Clusters;
tests/redis/keylock/test_lost_replies.py holds them to it.
"""

from weakref import WeakKeyDictionary

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.keylock.holdings import Holdings
from interlock.remote.redispy import ADVICE, advice_on, code_of, given_code, names_of

_CLIENTS = {"RedisError", "ValkeyError", "RedisClusterException", "ValkeyClusterException"}


class LostReply(UnknownOutcome):
    """The connection broke after a command was, perhaps, sent: worth asking again at once."""


class NotHere(StoreError):
    """This server, or this user, can't do it in this way; another way may work.

    Attributes:
        lasts: True if it will be so the next time too.
    """

    lasts = True


class NotNow(NotHere):
    """Likewise, and it may work the next time."""

    lasts = False


_FULL_POOL = "all connections of the client's pool are in use: raise its max_connections"
_UNREACHABLE = "the server can't be reached: does it run, and is the address right?"
_BROKEN = "the connection broke, and it may have been done or not: try again"
_LATE = "the server did not answer in time, and may have done it or not: try again"
_MISSING = "this server does not have it"
_MEANINGS: tuple[tuple[str, str, type[StoreError], str], ...] = (
    ("NOAUTH", "", StoreError, ADVICE["NOAUTH"]),
    ("MaxConnectionsError", "", StoreError, _FULL_POOL),
    ("ConnectionError", "too many connections", StoreError, _FULL_POOL),
    ("TimeoutError", "", UnknownOutcome, _LATE),
    ("LOADING", "", UnknownOutcome, ADVICE["LOADING"]),
    ("ConnectionError", "connecting to", UnknownOutcome, _UNREACHABLE),
    ("OSError", "connecting to", UnknownOutcome, _UNREACHABLE),
    ("ConnectionError", "", LostReply, _BROKEN),
    ("OSError", "", LostReply, _BROKEN),
    ("Exception", "unknown command", NotHere, _MISSING),
    ("Exception", "syntax error", NotHere, _MISSING),
    ("Exception", "command doesn't exist", NotHere, _MISSING),  # so says a Cluster's client
    ("NOPERM", "", NotHere, f"{ADVICE['NOPERM']}, and get, del and pexpire to scripts"),
    ("OOM", "", NotNow, ADVICE["OOM"]),
    (
        "Exception",
        "transaction is deprecated",
        StoreError,
        "this client knows no transactions on a Cluster: use a KeyLock, or redis-py 6 or newer",
    ),
)
"""For a class or code of an exception and a part of its text: what it means, and what to do; the first one counts."""


def translated(error: Exception, command: str, key: object) -> StoreError | None:
    """Return an exception of a client as an error of this library.

    Args:
        error: what the client raised.
        command: the command that it was asked to send.
        key: the key of the lock.

    Returns:
        The error, whose cause is to be `error`; None if it is no failure of the server or of the way to it.
    """
    signs, text = names_of(error), str(error)
    what = f"{command} on the key {key!r} failed: {text or type(error).__name__}"
    code = code_of(error) if signs & _CLIENTS else ""
    signs |= {given_code(error), code}
    for sign, part, kind, advice in _MEANINGS:
        if sign in signs and part in text.lower():
            return kind(f"{what}; {advice}")
    return StoreError(f"{what}; {advice_on(code)}") if signs & _CLIENTS else None


class Sent:
    """Whether a question went to the server more than once: clients try again by themselves, and do not tell.

    A release whose first reply was lost is then answered "nothing there", which would look as if the lock had been
    lost.  The client's own retries stay as its user wants them: here they are only counted.  (A Cluster's client also
    sends again where a slot has moved.)

    Attributes:
        again: True if some command was sent again.
    """

    again = False


class CommandName(str):
    """The name of a command, which counts how often a client encodes it: how often it begins to send it."""

    times = 0

    def encode(self, *how: str) -> bytes:
        """Return it for the wire."""
        if not how:  # with arguments it is looked at, as by the Clusters' parsers of commands
            self.times += 1
        return super().encode(*how)


class Known:
    """What is known about a server.

    Attributes:
        ways: which way worked the last time, for each thing that can be asked in several.
        reentrant: who holds which re-entrant lock.
    """

    def __init__(self) -> None:
        self.ways: dict[str, int] = {}
        self.reentrant = Holdings()


_known: "WeakKeyDictionary[object, Known]" = WeakKeyDictionary()


def known_of(client: object) -> Known:
    """Return what is known about the server of a client; clients that share their connections share it."""
    try:
        return _known.setdefault(getattr(client, "connection_pool", None) or client, Known())
    except TypeError:  # can't be hashed, or not be referred to weakly
        return Known()


def as_bytes(reply: object) -> bytes:
    """Return a reply as bytes, also of a client that decodes whatever it is told."""
    return reply if isinstance(reply, bytes) else str(reply).encode()
