"""What the server's refusals mean, and what to do about them; no client library is imported."""

from typing import NoReturn

from interlock._redis.acl import CLUSTER, DATABASE, SENTINEL, SERVER
from interlock.core.errors import StoreError

LOGIN = "wrong user or password, or none: give them in the URL (redis://user:password@host) or to the client"
_TO_A_NODE = "this server is a node of a cluster: use a client for Clusters, or redis+cluster://"
ADVICE = {
    "WRONGTYPE": "the key holds something that is no lock, so another program uses it: choose another name "
    "(connect() also has namespace=), or remove the key",
    "NOPERM": "the server's access list forbids it: allow the user (ACL SETUSER)",
    "NOAUTH": LOGIN,
    "WRONGPASS": LOGIN,
    "OOM": "the server is full and refuses to write: raise its maxmemory, or remove data; leave maxmemory-policy at "
    "noeviction, any other may throw held locks away",
    "READONLY": "this is a replica, which can't write: connect to the primary, or through Sentinel "
    "(redis+sentinel://, or a client's master_for), which knows it",
    "LOADING": "the server is starting and still loads its data: try again in a moment",
    "MASTERDOWN": "the replica has lost its primary: connect to the primary, or through Sentinel, which knows it",
    "CLUSTERDOWN": "the cluster has no working node for this name now: look at CLUSTER INFO",
    "TRYAGAIN": "the slot of this name is being moved to another node of the cluster: try again in a moment",
    "BUSY": "the server is busy with a script that does not end: look at SCRIPT KILL",
    "MISCONF": "the server can't save its data to disk and so refuses to write: look at its log",
    "NOREPLICAS": "the server has fewer replicas than min-replicas-to-write asks for",
    "CROSSSLOT": "the keys of one name must be in one slot: this is a defect of interlock, please report it",
    "UNKNOWN": "the server does not know a command that locks need: it must be Redis 6 or Valkey 7.2, or newer",
    "MOVED": _TO_A_NODE,
    "ASK": _TO_A_NODE,
}
"""What to do, by the code that the server's refusal begins with."""

_BY_CLASS = {
    "AskError": "ASK",
    "AuthenticationError": "NOAUTH",
    "AuthorizationError": "NOAUTH",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}
"""The codes of the libraries' own classes, from whose texts the library has cut them off."""
_REDIRECTIONS = ("MOVED", "ASK")
_RIGHTS = f"'{SERVER} {DATABASE}'; on a cluster also '{CLUSTER}'; on the Sentinels '{SENTINEL}'"
_PASSING = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "BUSY", "NOREPLICAS", "MISCONF", "OOM")


class Refused(StoreError):
    """The server answered, and refused; nothing was done.

    Attributes:
        code: what the server calls it, e.g. "NOPERM".
    """

    code = ""


class Passing(Refused):
    """The server refuses now, but may not do so soon."""


class Moving(Passing):
    """The slot of the name moves to another node of the cluster, and not all of its keys are on one node now."""


class NoRoom(Passing):
    """No connection is free, here or at the server: nothing was sent."""


class Redirected(Passing):
    """Another node of the cluster has the name.

    Attributes:
        address: its host and port; no host if it is that of the node which says so.
        asking: True if the name only moves there now: it is to be asked for with ASKING.
    """

    def __init__(self, text: str, where: str) -> None:
        super().__init__(f"{where} says {text}: the name lives on another node; connect with redis+cluster://")
        kind, _, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        self.address = (host, int(port))
        self.asking = kind == "ASK"


def given_code(error: BaseException) -> str:
    """Return the code that a refusal was given: by its class, else the first word of its text."""
    for each in type(error).__mro__:
        if each.__name__ in _BY_CLASS:
            return _BY_CLASS[each.__name__]
    return str(error).partition(" ")[0]


def code_of(error: BaseException) -> str:
    """Return the code of a refusal; one that came through a script is looked for in its text."""
    text, code = str(error), given_code(error)
    if code in ADVICE or code == "NOSCRIPT":
        return code
    lower = text.lower()
    if "unknown command" in lower or "unknown redis command" in lower:
        return "UNKNOWN"  # first: its text has the words of the command, so the name of a lock
    if "permission" in lower or "acl failure" in lower or "the user executing the script can't" in lower:
        return "NOPERM"
    if "attempt to" in lower and "script" in lower:
        return "WRONGTYPE"  # the script stumbled over what it found under the key
    if "non local key" in lower:
        return "TRYAGAIN"  # the script took the last waiter from a key of a slot that moves, and looked again
    if "unauthenticated" in lower:
        return "NOAUTH"
    return next((each for each in ADVICE if each in text and each not in _REDIRECTIONS), code)


def advice_on(code: str) -> str:
    """Return what to do about a refusal."""
    return ADVICE.get(code, "look at the server's log")


def refusal(error: Exception, where: str, line: str = "") -> "Refused":
    """Return what a refusal means: Passing if it may be otherwise soon, Redirected if another node is to be asked."""
    code = code_of(error)
    if code in _REDIRECTIONS:
        redirected = Redirected(str(error), where)
        redirected.code = code
        return redirected
    advice = advice_on(code)
    if code == "NOPERM":
        advice = f"{advice} {_RIGHTS}"
    if code == "WRONGTYPE" and line:
        advice = f"{advice}: {line}"
    kind = Moving if code == "TRYAGAIN" else Passing if code in _PASSING else Refused
    refused = kind(f"{where} refused: {error}; {advice}")
    refused.code = code
    return refused


def is_full(error: Exception, said: bytes | bytearray = b"") -> bool:
    """Tell, from an error or what the server said, whether it has as many connections as it may have (maxclients)."""
    return b"max number of clients" in said or "max number of clients" in str(error).lower()


def full(where: str, error: Exception) -> NoRoom:
    """Return the error of a server that has as many connections as it may have."""
    return NoRoom(
        f"{where} has as many connections as it may have ({error}): raise maxclients there, or let the processes "
        f"have fewer (?max_connections=)"
    )


def no_room(where: str, most: int, seconds: float) -> NoRoom:
    """Return the error of a process all of whose connections are in use."""
    return NoRoom(
        f"all {most} connections to {where} were in use for {seconds:g} s: is it overloaded? Else let this process "
        f"have more (?max_connections=)"
    )


def refuse(error: Exception, where: str, line: str = "") -> NoReturn:
    """Raise what a refusal means.

    Raises:
        Redirected: another node of the cluster is to be asked.
        Passing: it may be otherwise soon.
        Refused: it will be the same again.
    """
    raise refusal(error, where, line) from error
