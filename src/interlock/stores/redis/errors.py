"""What the server's refusals mean, and what to do about them: one table."""

from collections.abc import Iterator
from typing import NamedTuple

from interlock.core.errors import StoreError
from interlock.remote.failures import ConnectionEnded, Denied, NoRoom, Passing, Refused, Unreachable, ended
from interlock.stores.redis.resp import Garbage, ReplyError

LOGIN = "wrong user or password, or none: give them in the URL (redis://user:password@host) or to the client"
_NODE = "this server is a node of a cluster: use a client for Clusters, or redis+cluster://"


class Meaning(NamedTuple):
    """What a refusal means.

    Attributes:
        advice: what to do.
        passes: True if it may be otherwise soon.
        needs_operator, is_away: as in `Passing`.
    """

    advice: str
    passes: bool = False
    needs_operator: bool = False
    is_away: bool = False


MEANINGS = {
    "WRONGTYPE": Meaning(
        "the key holds something that is no lock, so another program uses it: choose another name (connect() also "
        "has namespace=), or remove the key"
    ),
    "NOPERM": Meaning("the server's access list forbids it: allow the user (ACL SETUSER)"),
    "NOAUTH": Meaning(LOGIN),
    "WRONGPASS": Meaning(LOGIN),
    "OOM": Meaning(
        "the server is full and refuses to write: raise its maxmemory, or remove data; leave maxmemory-policy at "
        "noeviction, any other may throw held locks away",
        passes=True,
        needs_operator=True,
    ),
    "READONLY": Meaning(
        "this is a replica, which can't write: connect to the primary, or through Sentinel (redis+sentinel://, or a "
        "client's master_for), which knows it",
        passes=True,
        is_away=True,
    ),
    "LOADING": Meaning("the server is starting and still loads its data: try again in a moment", passes=True),
    "MASTERDOWN": Meaning(
        "the replica has lost its primary: connect to the primary, or through Sentinel, which knows it", passes=True
    ),
    "CLUSTERDOWN": Meaning("the cluster has no working node for this name now: look at CLUSTER INFO", passes=True),
    "TRYAGAIN": Meaning(
        "the slot of this name is being moved to another node of the cluster: try again in a moment", passes=True
    ),
    "BUSY": Meaning("the server is busy with a script that does not end: look at SCRIPT KILL", passes=True),
    "MISCONF": Meaning(
        "the server can't save its data to disk and so refuses to write: look at its log",
        passes=True,
        needs_operator=True,
    ),
    "NOREPLICAS": Meaning("the server has fewer replicas than min-replicas-to-write asks for", passes=True),
    "CROSSSLOT": Meaning("the keys of one call must be in one slot: this is a defect of interlock, please report it"),
    "UNKNOWN": Meaning(
        "the server does not know a command that locks need: it must be Redis 6 or Valkey 7.2, or newer, and what "
        "lies between must let scripts and SUBSCRIBE pass"
    ),
    "MOVED": Meaning(_NODE),
    "ASK": Meaning(_NODE),
}
"""By the code that the server's refusal begins with."""

SERVER = (
    "~interlock:* &interlock:* +evalsha +eval +subscribe +publish +time +hmget +hget +hset +hdel +hgetall +pexpireat "
    "+scan +ping +info"
)
"""The rights that a user needs on a server."""
DATABASE = "+select"
"""For a database other than 0."""
CLUSTER = "+cluster|slots +asking"
"""On each node of a cluster, besides those of a server."""
SENTINEL = "+sentinel|masters"
"""On the Sentinels, for the user with whom they are asked."""
_RIGHTS = f"'{SERVER} {DATABASE}'; on a cluster also '{CLUSTER}'; on the Sentinels '{SENTINEL}'"


class Redirected(Refused):
    """Another node of the cluster has the name.

    Attributes:
        address: its host and port; no host if it is that of the node which says so.
        asking: True if the name only moves there now: it is to be asked for with ASKING.
    """

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(f"{where} says {text}: the name lives on another node; connect with redis+cluster://")
        kind, _, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        self.address = (host, int(port))
        self.asking = kind == "ASK"


def code_of(text: str) -> str:
    """Return the code of a refusal; one that came through a script is looked for in its text."""
    code = text.partition(" ")[0]
    if code in MEANINGS or code == "NOSCRIPT":
        return code
    lower = text.lower()
    if "unknown command" in lower or "unknown redis command" in lower:
        return "UNKNOWN"  # first: its text has the words of the command, so the name of a lock
    if "permission" in lower or "acl failure" in lower or "the user executing the script can't" in lower:
        return "NOPERM"
    if "attempt to" in lower and "script" in lower:
        return "WRONGTYPE"  # the script stumbled over what it found under the key
    if "unauthenticated" in lower or "without any password configured" in lower:
        return "NOAUTH"
    return next((each for each in MEANINGS if each in text and each not in ("MOVED", "ASK")), code)


def refusal(error: ReplyError, where: str, line: str = "") -> Refused:
    """Return what a refusal means: Passing if it may be otherwise soon, Redirected if another node has the name.

    Args:
        error: what the server said.
        where: the server, for messages.
        line: the key that it is about.
    """
    text = str(error)
    code = code_of(text)
    refused: Refused
    if text.startswith(("MOVED ", "ASK ")):
        refused = Redirected(text, where)
    elif "max number of clients" in text.lower():
        refused = full(where, text)
    else:
        meaning = MEANINGS.get(code, Meaning("look at the server's log"))
        advice = meaning.advice
        if code == "NOPERM":
            advice = f"{advice} {_RIGHTS}"
        elif code == "WRONGTYPE" and line:
            advice = f"{advice}: {line}"
        refused = (Passing if meaning.passes else Refused)(f"{where} refused: {text}; {advice}")
        refused.is_away = meaning.is_away
        if isinstance(refused, Passing):
            refused.needs_operator = meaning.needs_operator
    refused.code = code
    refused.__cause__ = error
    return refused


def full(where: str, text: str) -> NoRoom:
    """Return the error of a server that has as many connections as it may have."""
    return NoRoom(
        f"{where} has as many connections as it may have ({text}): raise maxclients there, or let the processes have "
        f"fewer (?max_connections=)"
    )


def unreachable(where: str, error: BaseException) -> StoreError:
    """Return the error of a connection that could not be made."""
    text = next((str(each) for each in _causes(error) if str(each)), type(error).__name__)
    if isinstance(error, ReplyError):
        refused = refusal(error, where)
        if refused.code in ("NOAUTH", "WRONGPASS"):
            return Denied(f"can't connect to {where}: {text}; {LOGIN}")
        return refused
    if isinstance(error, Garbage):
        return garbled(where, error)
    if "SSL" in text or "certificate" in text.lower():
        return Denied(f"can't connect to {where}: {text}; look at the TLS settings (rediss://…?ssl_ca_certs=FILE)")
    if isinstance(error, (ConnectionResetError, BrokenPipeError, EOFError)):
        return ended(where, error)  # it was there a moment ago: worth another try
    if isinstance(error, TimeoutError):
        text = "timed out"
    return Unreachable(f"can't connect to {where}: {text}; is it running, and are host, port and password right?")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def garbled(where: str, found: Garbage) -> ConnectionEnded:
    """Return the error of an answer that is no reply of Redis."""
    return ConnectionEnded(
        f"what answers in the place of {where} does not speak the protocol of Redis: it said {found.args[0]!r}; are "
        f"host and port right, and what lies between?"
    )
