"""Clients of redis-py and valkey-py: how they are recognised, and what their errors mean; neither is imported."""

import re
from inspect import iscoroutinefunction
from itertools import chain

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described

LIBRARIES = ("redis", "valkey")
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
    "UNKNOWN": "the server, or a proxy before it, does not know a command that locks need: it must be Redis 6 or "
    "Valkey 7.2, or newer",
    "SCRIPTS": "scripts are switched off there, and each step of a lock is one: allow EVAL and EVALSHA "
    "(rename-command; fakeredis has them with its extra [lua]), or take another store",
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
"""The error codes of the libraries' own classes, whose texts lack the code."""

_BY_TEXT = {
    code: re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for code, pattern in {
        # First: its text has the words of the command, so the name of a lock.
        "UNKNOWN": "unknown (redis )?command|unsupported|not supported",
        "NOPERM": "permission|acl failure|the user executing the script can't",
        # The script stumbled over what it found under the key.
        "WRONGTYPE": "attempt to.*script|script.*attempt to",
        "NOAUTH": "unauthenticated|without any password configured",
    }.items()
}
"""The error codes of texts that lack one."""


def library_of(client: object) -> str | None:
    """Return the name of the library that a client, or what its class is made of, comes from; None if from none."""
    names = (base.__module__.partition(".")[0] for base in type(client).__mro__)
    return next((name for name in names if name in LIBRARIES), None)


def check_colour(client: object, tasks: bool, for_threads: str, for_tasks: str) -> None:
    """Raise InvalidArgument unless a client is one for threads, or one of asyncio.

    Args:
        client: of redis-py or valkey-py.
        tasks: True if asyncio tasks will use it.
        for_threads, for_tasks: what takes the clients of each kind.
    """
    awaited = iscoroutinefunction(getattr(client, "execute_command", None)) or any(
        ".asyncio" in base.__module__ for base in type(client).__mro__
    )
    if tasks and not awaited:
        raise InvalidArgument(
            f"{described(client)} would block the event loop: give it to {for_threads}, or take a client of asyncio"
        )
    if awaited and not tasks:
        raise InvalidArgument(f"{described(client)} is a client of asyncio: give it to {for_tasks}")


def names_of(error: BaseException) -> set[str]:
    """Return the names of the classes of an exception."""
    return {each.__name__ for each in type(error).__mro__}


def given_code(error: BaseException) -> str:
    """Return the code that a refusal was given: by its class, else the first word of its text."""
    classes = [each.__name__ for each in type(error).__mro__]
    return next((_BY_CLASS[name] for name in classes if name in _BY_CLASS), str(error).partition(" ")[0])


def code_of(error: BaseException) -> str:
    """Return the code of a refusal; one that came through a script is looked for in its text."""
    text, code = str(error), given_code(error)
    if code in ADVICE or code == "NOSCRIPT":
        return code
    by_words = (each for each, pattern in _BY_TEXT.items() if pattern.search(text))
    by_code = (each for each in ADVICE if each in text and each not in ("MOVED", "ASK"))
    return next(chain(by_words, by_code), code)


def advice_on(code: str, text: str = "") -> str:
    """Return what to do about a refusal with a text."""
    if code == "UNKNOWN" and "command 'eval" in text.lower().replace("`", "'"):
        return ADVICE["SCRIPTS"]
    return ADVICE.get(code, "look at the server's log")
