"""What the server's refusals mean, and what to do about them."""

from typing import NoReturn

from interlock.errors import StoreError
from interlock.stores.redis.resp import ReplyError

_ADVICE = {
    "WRONGTYPE": "a key of this lock holds something that is no lock: rename the lock, give connect() a namespace=, "
    "or remove the key",
    "NOPERM": "the server's access list forbids a command, key or channel that locks need; allow the user "
    "'~interlock:* &interlock:* +evalsha +eval +subscribe +publish +time +hmget +hget +hset +hsetnx +hdel +hgetall "
    "+exists +pexpire +pexpireat +zadd +zrem +zpopmin +zrange +zrank +scan +ping'",
    "NOAUTH": "the server wants a password: give it in the URL (redis://user:password@host) or to the client",
    "WRONGPASS": "user name or password is wrong",
    "OOM": "the server is full (maxmemory) and refuses to write: give it memory, or remove data; held locks can be "
    "released meanwhile only when it has some again",
    "READONLY": "this is a replica, which can't write: connect to the primary, or through Sentinel "
    "(redis+sentinel://) which knows it",
    "LOADING": "the server is starting and still loads its data: try again in a moment",
    "MASTERDOWN": "the replica has lost its primary",
    "CLUSTERDOWN": "the cluster has no working node for this name now: look at CLUSTER INFO",
    "BUSY": "the server is busy with a script that does not end: look at SCRIPT KILL",
    "MISCONF": "the server can't save its data to disk and so refuses to write: look at its log",
    "NOREPLICAS": "the server has fewer replicas than min-replicas-to-write asks for",
    "CROSSSLOT": "the keys of one name must be in one slot: this is a defect of interlock, please report it",
    "UNKNOWN": "the server does not know a command that locks need: it must be Redis 6 or Valkey 7.2, or newer",
}
_PASSING = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "BUSY", "NOREPLICAS", "MISCONF")


class Refused(StoreError):
    """The server answered, and refused; nothing was done."""


class Passing(Refused):
    """The server refuses now, but may not do so soon."""


class Redirected(Passing):
    """Another node of the cluster has the name.

    Attributes:
        address: its host and port.
        asking: True if the name only moves there now: it is to be asked for with ASKING.
    """

    def __init__(self, text: str, where: str) -> None:
        super().__init__(f"{where} says {text}: the name lives on another node; connect with redis+cluster://")
        kind, _, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        self.address = (host or where, int(port))
        self.asking = kind == "ASK"


def code_of(error: ReplyError) -> str:
    """Return the code of a refusal; one that came through a script is looked for in its text."""
    text = str(error)
    code = text.partition(" ")[0]
    if code in _ADVICE or code in ("NOSCRIPT", "MOVED", "ASK", "TRYAGAIN"):
        return code
    lower = text.lower()
    if "permission" in lower or "acl failure" in lower or "can't run this command" in lower:
        return "NOPERM"
    if "attempt to" in lower and "script" in lower:
        return "WRONGTYPE"  # the script stumbled over what it found under the key
    if "unauthenticated" in lower:
        return "NOAUTH"
    if "unknown command" in lower or "unknown redis command" in lower:
        return "UNKNOWN"
    return next((each for each in _ADVICE if each in text), code)


def refuse(error: ReplyError, where: str, line: str = "") -> NoReturn:
    """Raise what a refusal means.

    Raises:
        Redirected: another node of the cluster is to be asked.
        Passing: it may be otherwise soon.
        Refused: it will be the same again.
    """
    code = code_of(error)
    if code in ("MOVED", "ASK"):
        raise Redirected(str(error), where) from error
    advice = _ADVICE.get(code, "look at the server's log")
    if code == "WRONGTYPE" and line:
        advice = f"{advice}: {line}"
    kind = Passing if code in _PASSING else Refused
    raise kind(f"{where} refused: {error}; {advice}") from error
