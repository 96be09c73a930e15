"""The register that the checker gives to the production protocol: its methods return requests for the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from interlock.core.claims import Claim, State
from interlock.core.pending import Pending
from interlock.core.queue import EnterResult, Renewed
from proof.runtime import Waiter, drive


# No named tuples: two of different classes would be equal, and the worlds that hold them one and the same.
@dataclass(frozen=True, slots=True)
class Create:
    """Write a pending record."""

    id: str
    units: int
    capacity: int


@dataclass(frozen=True, slots=True)
class List:
    """Read the records."""


@dataclass(frozen=True, slots=True)
class Update:
    """Raise or lower a flag."""

    id: str
    state: State


@dataclass(frozen=True, slots=True)
class Promote:
    """pending -> using."""

    id: str


@dataclass(frozen=True, slots=True)
class PromoteIfFree:
    """The folded statement."""

    id: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove one's own record."""

    id: str


@dataclass(frozen=True, slots=True)
class Reap:
    """Remove somebody's expired record."""

    id: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend leases; the checker's callers renew one claim at a time."""

    id: str


@dataclass(frozen=True, slots=True)
class Do:
    """A step on a line as a whole."""

    decide: str
    id: str
    units: int = 0
    capacity: int = 0
    wait: bool = False
    again: bool = False


Write: TypeAlias = Create | Update | Promote | PromoteIfFree | Delete | Reap | Renew | Do
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
        """As `pending.Register.create`: the request for it."""
        return Create(claim.id, claim.spec.units, claim.spec.capacity)

    def list(self, key: str) -> List:
        """As `pending.Register.list`: the request for it."""
        return List()

    def update(self, claim: Claim, state: State) -> Update:
        """As `pending.Register.update`: the request for it."""
        return Update(claim.id, state)

    def promote(self, claim: Claim) -> Promote:
        """As `pending.Register.promote`: the request for it."""
        return Promote(claim.id)

    def promote_if_free(self, claim: Claim) -> PromoteIfFree:
        """As `pending.Register.promote_if_free`: the request for it."""
        return PromoteIfFree(claim.id)

    def delete(self, claim: Claim) -> Delete:
        """As `pending.Register.delete`: the request for it."""
        return Delete(claim.id)

    def reap(self, key: str, id: str) -> Reap:
        """As `pending.Register.reap`: the request for it."""
        return Reap(id)

    def renew(self, claims: Sequence[Claim], wakeup: Any) -> Renew:
        """As `pending.Register.renew`: the request for it."""
        (claim,) = claims
        return Renew(claim.id)

    def look(self, key: str) -> List:
        """As `pending.Register.look`: the request for it."""
        return List()

    def evict(self, key: str, id: str | None) -> Reap:
        """As `pending.Register.evict`: the request for it."""
        raise NotImplementedError("no caller of the checker evicts")


class RegisterQueue:
    """A queue for coroutines, made of the steps of the pending protocol, which are generators.

    Args:
        steps: the protocol on a register.
    """

    def __init__(self, steps: Pending) -> None:
        self._steps = steps

    def subscribe(self) -> Waiter:
        """Return what the caller can wait on."""
        return Waiter()

    async def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> EnterResult:
        """As `Pending.enter`."""
        result: EnterResult = await drive(self._steps.enter(claim, waiter, wait, again))
        return result

    async def leave(self, claim: Claim) -> bool:
        """As `Pending.leave`."""
        return bool(await drive(self._steps.leave(claim)))

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """As `Pending.renew`."""
        return list(await drive(self._steps.renew(claims)))
