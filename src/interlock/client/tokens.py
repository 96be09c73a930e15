"""The token of a hold that outlives its process: every program that has it can use the lock, so it is never shown."""

import json
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal, NamedTuple
from urllib.parse import unquote

from interlock.core.claims import SEPARATOR, Claim, LockSpec, checked_ttl
from interlock.core.errors import InvalidArgument, LockLost

BEGINS = "interlock1."
DEFAULTS = re.compile(r"^(?:localhost|127\.0\.0\.1|\[::1\])(?=:|$)|:(?:6379|5432|3306|2379)$")
"""In a host: the names of this machine, and a port that need not be written."""
SAME = {"valkey": "redis", "valkeys": "redis", "rediss": "redis", "mariadb": "mysql", "etcds": "etcd"}
NAMING = ("db=", "table=", "schema=", "endpoint=", "host=", "port=", "dbname=", "unix_socket=")
"""The options of a URL that select a store; the others say how to use it."""


class Token(NamedTuple):
    """What a token says.

    Attributes:
        where: the store, without passwords.
        namespace, name: of the lock.
        id, fence: of the claim; every program that has the id can release it.
        units, capacity, ttl, label: as it was asked for.
        who: the thread or task that detached it.
    """

    where: str
    namespace: str
    name: str
    id: str
    fence: int
    units: int
    capacity: int
    ttl: float
    label: str
    who: str

    def spec(self, ttl: float | None) -> LockSpec:
        """Return what the claim asks for, with another ttl unless that is None."""
        seconds = self.ttl if ttl is None else checked_ttl(ttl)
        return LockSpec(self.namespace + SEPARATOR + self.name, self.units, self.capacity, seconds, self.label)

    def __repr__(self) -> str:
        return f"<Token of {self.name!r} (fence {self.fence})>"


def written(where: str, claim: Claim, fence: int) -> str:
    """Return the token of a claim as text."""
    id, (key, units, capacity, ttl, label, _), who = claim
    namespace, _, name = key.partition(SEPARATOR)
    token = Token(where, namespace, name, id, fence, units, capacity, ttl, label, who)
    return BEGINS + urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")


def read(text: object, namespace: str | None = None) -> Token:
    """Return what a token says.

    Args:
        text: of the token.
        namespace: that it must be of; None for any.

    Raises:
        InvalidArgument: it is none, or of another namespace; the message does not show it.
    """
    try:
        if not isinstance(text, str) or not text.strip().startswith(BEGINS):
            raise ValueError
        data = text.strip()[len(BEGINS) :]
        token = Token(*json.loads(urlsafe_b64decode(data + "=" * (-len(data) % 4))))
    except (ValueError, TypeError):
        raise InvalidArgument(
            "that is no token of grant.detach() or `interlock hold`: give the whole of it, as it was printed"
        ) from None
    if namespace is not None and token.namespace != namespace:
        raise InvalidArgument(
            f"the token is of the namespace {token.namespace!r}, this connection of {namespace!r}: connect to that"
        )
    return token


def identity(where: str) -> tuple[object, ...] | None:
    """Return what identifies a store, the same for other spellings of its URL; None for a client without a URL.

    Args:
        where: the URL; neither user, password nor driver is part of the result.
    """
    scheme, slashes, rest = where.partition("://")
    if not slashes:
        return None
    address, _, query = rest.partition("?")
    kind = scheme.lower().partition("+")[0]
    if kind in ("file", "sqlite"):
        return kind, os.path.realpath("/" + unquote(address).removeprefix("localhost").lstrip("/"))
    hosts, _, path = address.rpartition("@")[2].partition("/")
    named = (DEFAULTS.sub("", host) for host in hosts.lower().split(","))
    options = sorted(each for each in query.split("&") if each.startswith(NAMING))
    return SAME.get(kind, kind), *named, "" if path.strip("/") == "0" else path.strip("/"), *options


def absent(token: Token, where: str) -> Literal[False]:
    """Return False for a token whose claim was not found.

    The client compares the URLs only after it has queried the store: two host names can be the same server.

    Args:
        token: whose claim was not found.
        where: the URL of the store that was queried.

    Raises:
        InvalidArgument: the token belongs to another store.
    """
    theirs, ours = identity(token.where), identity(where)
    if theirs and ours and theirs != ours:
        raise InvalidArgument(
            f"cannot use this token of {token.name!r}: it belongs to {token.where}, and this connection is to "
            f"{where}. Connect to {token.where}. If both URLs mean the same store, the lock was released, its lease "
            f"expired, or it was evicted"
        )
    return False


def gone(token: Token, where: str) -> LockLost:
    """Return the error for a token whose claim is gone.

    Args:
        token: whose claim was not found.
        where: the URL of the store that was queried.

    Raises:
        InvalidArgument: the token belongs to another store.
    """
    absent(token, where)
    return LockLost(
        f"the lock {token.name!r} (fence {token.fence}) is not held by this token any more: it was used before, its "
        f"lease has ended, or it was evicted; acquire the lock anew"
    )
