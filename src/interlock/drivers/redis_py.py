"""Recognition and errors of redis-py and valkey-py clients, without importing them."""

import re
from inspect import iscoroutinefunction
from itertools import chain

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described

LIBRARIES = ("redis", "valkey")
LOGIN = "User or password is wrong or missing. Give both in the URL (redis://user:password@host) or to the client."
_TO_A_NODE = "This server is a node of a cluster. Use a client for Clusters, or redis+cluster://."
ADVICE = {
    "WRONGTYPE": "Another program uses the key for something else. Choose another name, or a namespace= in "
    "connect(), or remove the key.",
    "NOPERM": "The server's access list forbids the command. Allow the command for the user (ACL SETUSER).",
    "NOAUTH": LOGIN,
    "WRONGPASS": LOGIN,
    "OOM": "The server is out of memory. Raise its maxmemory, or remove data. Leave maxmemory-policy at noeviction; "
    "other policies may remove held locks.",
    "READONLY": "The server is a read-only replica. Connect to the primary, or through Sentinel "
    "(redis+sentinel://, or a client's master_for).",
    "LOADING": "The server is still loading its data. Retry soon.",
    "MASTERDOWN": "The replica has lost its primary. Connect to the primary, or through Sentinel.",
    "CLUSTERDOWN": "The cluster has no working node for this name. Check CLUSTER INFO.",
    "TRYAGAIN": "The slot of this name is moving to another node of the cluster. Retry soon.",
    "BUSY": "The server is busy with a script. See SCRIPT KILL.",
    "MISCONF": "The server cannot save its data to disk. Check its log.",
    "NOREPLICAS": "The server has fewer replicas than min-replicas-to-write requires. Check its replicas.",
    "CROSSSLOT": "The keys of one name must be in one slot. This is a bug of interlock. Please report this error.",
    "UNKNOWN": "The server, or a proxy in front, lacks a command for locks. Use Redis 6 or Valkey 7.2, or newer.",
    "SCRIPTS": "The server forbids scripts, which locks need. Allow EVAL and EVALSHA (rename-command; with "
    "fakeredis, install its extra [lua]), or use another store.",
    "MOVED": _TO_A_NODE,
    "ASK": _TO_A_NODE,
}
"""The advice by the code at the beginning of the server's refusal."""

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
        # First, because its text contains the words of the command, and so the name of a lock.
        "UNKNOWN": "unknown (redis )?command|unsupported|not supported",
        "NOPERM": "permission|acl failure|the user executing the script can't",
        # The script failed on the value of the key.
        "WRONGTYPE": "attempt to.*script|script.*attempt to",
        "NOAUTH": "unauthenticated|without any password configured",
    }.items()
}
"""The error codes of texts that lack a code."""


def library_of(client: object) -> str | None:
    """Return the library of a client or of its base classes; None if unknown."""
    names = (base.__module__.partition(".")[0] for base in type(client).__mro__)
    return next((name for name in names if name in LIBRARIES), None)


def check_interface(client: object, tasks: bool, for_threads: str, for_tasks: str) -> None:
    """Raise InvalidArgument unless a client is of the right kind, sync or async.

    Args:
        client: a client of redis-py or valkey-py.
        tasks: True if asyncio tasks will use it.
        for_threads, for_tasks: the functions for each kind of client, for the message.
    """
    awaited = iscoroutinefunction(getattr(client, "execute_command", None)) or any(
        ".asyncio" in base.__module__ for base in type(client).__mro__
    )
    if tasks and not awaited:
        raise InvalidArgument(
            f"{described(client)} would block the event loop. Pass it to {for_threads}, or use a client for asyncio."
        )
    if awaited and not tasks:
        raise InvalidArgument(f"{described(client)} is a client for asyncio. Pass it to {for_tasks}.")


def names_of(error: BaseException) -> set[str]:
    """Return the names of the classes of an exception."""
    return {each.__name__ for each in type(error).__mro__}


def given_code(error: BaseException) -> str:
    """Return the code of a refusal: from its class, or the first word of its text."""
    classes = [each.__name__ for each in type(error).__mro__]
    return next((_BY_CLASS[name] for name in classes if name in _BY_CLASS), str(error).partition(" ")[0])


def code_of(error: BaseException) -> str:
    """Return the code of a refusal; search the text if a script raised it."""
    text, code = str(error), given_code(error)
    if code in ADVICE or code == "NOSCRIPT":
        return code
    by_words = (each for each, pattern in _BY_TEXT.items() if pattern.search(text))
    by_code = (each for each in ADVICE if each in text and each not in ("MOVED", "ASK"))
    return next(chain(by_words, by_code), code)


def advice_on(code: str, text: str = "") -> str:
    """Return the advice for a refusal."""
    if code == "UNKNOWN" and "command 'eval" in text.lower().replace("`", "'"):
        return ADVICE["SCRIPTS"]
    return ADVICE.get(code, "Check the server's log.")
