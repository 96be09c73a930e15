"""The token of a hold that outlives its process: every program that has it can use the lock, so it is never shown."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from interlock.core.claims import SEPARATOR, Claim, LockSpec, checked_ttl
from interlock.core.errors import InvalidArgument, LockLost

BEGINS = "interlock1."


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


def gone(token: Token) -> LockLost:
    """Return the error for a token whose claim is gone."""
    return LockLost(
        f"the lock {token.name!r} (fence {token.fence}) is not held by this token any more: it was used before, its "
        f"lease has ended, or it was evicted; acquire the lock anew"
    )
