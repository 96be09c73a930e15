"""The register that the checker gives to the production protocol: each method returns a description of the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from interlock.claims import Claim, State


class Create(NamedTuple):
    """Write a pending record."""

    id: str
    units: int
    capacity: int


class List(NamedTuple):
    """Read the records."""


class Update(NamedTuple):
    """Raise or lower a flag."""

    id: str
    state: State


class Promote(NamedTuple):
    """pending -> using."""

    id: str


class PromoteIfFree(NamedTuple):
    """The folded statement."""

    id: str


class Delete(NamedTuple):
    """Remove one's own record."""

    id: str


class Reap(NamedTuple):
    """Remove somebody's expired record."""

    id: str


class Renew(NamedTuple):
    """Extend leases; the checker's callers renew one claim at a time."""

    id: str


Write: TypeAlias = Create | Update | Promote | PromoteIfFree | Delete | Reap | Renew
Request: TypeAlias = Write | List


class ModelRegister:
    """A `Register` whose requests are carried out by the world.

    Args:
        folds: whether it has the folded statement.
    """

    poll = 1.0

    def __init__(self, folds: bool) -> None:
        self.folds = folds

    def create(self, claim: Claim, wakeup: Any) -> Create:
        return Create(claim.id, claim.terms.units, claim.terms.capacity)

    def list(self, key: str) -> List:
        return List()

    def update(self, claim: Claim, state: State) -> Update:
        return Update(claim.id, state)

    def promote(self, claim: Claim) -> Promote:
        return Promote(claim.id)

    def promote_if_free(self, claim: Claim) -> PromoteIfFree:
        return PromoteIfFree(claim.id)

    def delete(self, claim: Claim) -> Delete:
        return Delete(claim.id)

    def reap(self, key: str, id: str) -> Reap:
        return Reap(id)

    def renew(self, claims: Sequence[Claim], wakeup: Any) -> Renew:
        (claim,) = claims
        return Renew(claim.id)

    def look(self, key: str) -> List:
        return List()

    def evict(self, key: str, id: str | None) -> Reap:
        raise NotImplementedError("no caller of the checker evicts")
