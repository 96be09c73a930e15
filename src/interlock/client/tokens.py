"""Tokens of detached locks; a token gives access to its lock, so no message shows it."""

import json
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal, NamedTuple
from urllib.parse import unquote

from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.errors import InvalidArgument, LockLost

BEGINS = "interlock1."
DEFAULT_ADDRESSES = re.compile(r"^(?:localhost|127\.0\.0\.1|\[::1\])(?=:|$)|:(?:6379|5432|3306|2379)$")
"""In a host: the names of this machine, and the default ports."""
SAME = {"valkey": "redis", "valkeys": "redis", "rediss": "redis", "mariadb": "mysql", "etcds": "etcd"}
NAMING = ("db=", "table=", "schema=", "endpoint=", "host=", "port=", "dbname=", "unix_socket=")
"""The URL options that select a store; the others configure the connection."""


class Token(NamedTuple):
    """The content of a token.

    Attributes:
        where: the store's URL, without passwords.
        namespace, name: the lock.
        id, fence: the claim; every program that has the id can release it.
        units, capacity, ttl, label: the parameters of the claim.
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
        """Return the parameters of the claim, with another ttl unless that is None."""
        seconds = self.ttl if ttl is None else ttl
        return LockSpec(self.namespace + SEPARATOR + self.name, self.units, self.capacity, seconds, self.label)

    def __repr__(self) -> str:
        return f"<Token of {self.name!r} (fence {self.fence})>"


def written(where: str, claim: Claim, fence: int) -> str:
    """Return the token of a claim as text."""
    id, (key, units, capacity, ttl, label, _, _), who = claim
    namespace, _, name = key.partition(SEPARATOR)
    token = Token(where, namespace, name, id, fence, units, capacity, ttl, label, who)
    return BEGINS + urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")


def read(text: object, namespace: str | None = None) -> Token:
    """Return the content of a token.

    Args:
        text: the token.
        namespace: the namespace that it must have; None for any.

    Raises:
        InvalidArgument: the text is not a token, or has another namespace; the message does not show it.
    """
    try:
        if not isinstance(text, str) or not text.strip().startswith(BEGINS):
            raise ValueError
        data = text.strip()[len(BEGINS) :]
        token = Token(*json.loads(urlsafe_b64decode(data + "=" * (-len(data) % 4))))
    except (ValueError, TypeError):
        raise InvalidArgument(
            "This is not a token of grant.detach() or `interlock hold`. Give the whole token, as it was printed."
        ) from None
    if namespace is not None and token.namespace != namespace:
        raise InvalidArgument(
            f"The token belongs to namespace {token.namespace!r}, this connection to {namespace!r}. Connect with "
            f"namespace={token.namespace!r}."
        )
    return token


def identity(where: str) -> tuple[object, ...] | None:
    """Return what identifies a store in each spelling of its URL; None without a URL.

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
    named = (DEFAULT_ADDRESSES.sub("", host) for host in hosts.lower().split(","))
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
            f"Cannot use this token of {token.name!r}: it belongs to {token.where}, and this connection is to "
            f"{where}. Connect to {token.where}. If both URLs mean the same store, the lock was released, its lease "
            f"expired, or it was evicted."
        )
    return False


def gone(token: Token, where: str) -> LockLost:
    """Return the error for a token whose claim no longer exists.

    Args:
        token: whose claim was not found.
        where: the URL of the store that was queried.

    Raises:
        InvalidArgument: the token belongs to another store.
    """
    absent(token, where)
    return LockLost(
        f"Lock {token.name!r} (fence {token.fence}) is no longer held by this token: it was used before, its lease "
        f"expired, or it was evicted. Acquire the lock again."
    )
