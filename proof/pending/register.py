"""The record store that the checker gives to the production protocol: its methods are requests to the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from interlock.core._async.pending import AsyncPending
from interlock.core.claims import Claim, State
from interlock.core.queue import EnterResult, Renewed
from proof.runtime import AsyncWaiter, effect


# Not named tuples: those of different classes can be equal, and so would be the states that contain them.
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
    """Set or clear the flag of the own record."""

    id: str
    state: State


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw a fence from a counter."""

    id: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Change the own record from pending to using; the store gives the fence if none was drawn."""

    id: str
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the own record."""

    id: str


@dataclass(frozen=True, slots=True)
class Reap:
    """Remove another caller's expired record."""

    id: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend leases; the checker's callers renew one claim at a time."""

    id: str


@dataclass(frozen=True, slots=True)
class Do:
    """An atomic step on a line."""

    decide: str
    id: str
    units: int = 0
    capacity: int = 0
    wait: bool = False
    again: bool = False


Write: TypeAlias = Create | Update | Draw | Promote | Delete | Reap | Renew | Do
Request: TypeAlias = Write | List


class ModelRecords:
    """A record store whose requests the world performs.

    Args:
        draws: True if a fence is drawn before the promotion.
    """

    __slots__ = ("_draws",)
    look_again = 1.0

    def __init__(self, draws: bool) -> None:
        self._draws = draws

    async def create(self, claim: Claim) -> None:
        """As `pending.AsyncRecords.create`."""
        await effect(Create(claim.id, claim.spec.units, claim.spec.capacity))

    async def list(self, key: str) -> Any:
        """As `pending.AsyncRecords.list`."""
        return await effect(List())

    async def update(self, claim: Claim, state: State) -> bool:
        """As `pending.AsyncRecords.update`."""
        return bool(await effect(Update(claim.id, state)))

    async def promote(self, claim: Claim) -> Any:
        """As `pending.AsyncRecords.promote`."""
        fence = await effect(Draw(claim.id)) if self._draws else 0
        return await effect(Promote(claim.id, fence))

    async def delete(self, claim: Claim) -> bool:
        """As `pending.AsyncRecords.delete`."""
        return bool(await effect(Delete(claim.id)))

    async def reap(self, key: str, id: str) -> None:
        """As `pending.AsyncRecords.reap`."""
        await effect(Reap(id))

    async def renew(self, claims: Sequence[Claim]) -> Any:
        """As `pending.AsyncRecords.renew`; the checker's callers renew one claim at a time."""
        (claim,) = claims
        return await effect(Renew(claim.id))


class RecordQueue:
    """`stores._async.record_queue` without its waiters.

    Args:
        protocol: the protocol on records.
    """

    __slots__ = ("_protocol",)

    def __init__(self, protocol: AsyncPending) -> None:
        self._protocol = protocol

    def subscribe(self) -> AsyncWaiter:
        """Return a waiter for the caller."""
        return AsyncWaiter()

    async def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> EnterResult:
        """As `AsyncPending.enter`."""
        return await self._protocol.enter(claim, wait, again)

    async def leave(self, claim: Claim) -> bool:
        """As `AsyncRecords.delete`."""
        return await self._protocol.records.delete(claim)

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """As `AsyncRecords.renew`."""
        return list(await self._protocol.records.renew(claims))
