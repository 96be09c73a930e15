"""What watchdogs are given by tests: a store that answers as a test says, and grants."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from interlock.client.base import BaseGrant
from interlock.core.claims import Claim, LockSpec
from interlock.core.oldstore import BaseStore
from tests.support.spied_store import away

NOW = 1e9  # leases that end after it have not ended by the clock of this machine
TTL = 30.0
ALIVE: list[BaseGrant] = []


class Queue(BaseStore):
    """A store that answers as a test says.

    Attributes:
        answers: what a renewal answers, or raises.
        renewed: the ids that it was asked for, request by request.
        left: the ids that left.
        rested: called when it may rest.
    """

    def __init__(self) -> None:
        self.answers: Any = True
        self.renewed: list[list[str]] = []
        self.left: list[str] = []
        self.rested: Callable[[], object] = lambda: None

    def renew(self, claims: Sequence[Claim]) -> Any:
        """As `Queue.renew`."""
        self.renewed.append([claim.id for claim in claims])
        if isinstance(self.answers, BaseException):
            raise self.answers
        return [self.answers for _ in claims]
        yield

    def leave(self, claim: Claim) -> Any:
        """As `Queue.leave`; "a" can't leave."""
        self.left.append(claim.id)
        if claim.id == "a":
            raise away()
        return True
        yield

    def rest(self) -> None:
        """As `Store.rest`."""
        self.rested()


def grant(id: str, ends: float = TTL, renews: bool = True) -> BaseGrant:
    """Return a grant whose lease ends so many seconds from now."""
    made = BaseGrant((Claim(id, LockSpec(f"\0{id}", ttl=TTL)), 1, NOW + ends), renews, None)
    made._session, made._owner = SimpleNamespace(heard=False), id.upper()
    ALIVE.append(made)
    return made


def gives_back(given: list[str]) -> Callable[[BaseGrant], None]:
    """Return what releases grants and notes it; "a" can't be released."""

    def release(grant: BaseGrant) -> None:
        given.append(grant.id)
        if grant.id == "a":
            raise away()

    return release
