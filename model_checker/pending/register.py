"""The record store that the checker gives to the production protocol: its methods are requests to the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlock.core._async.pending import AsyncPending
from interlock.core.claims import Claim, State
from interlock.core.queue import EnterResult, Renewed
from model_checker.runtime import AsyncWaiter, effect


class Ask(NamedTuple):
    """A request to the store.

    Attributes:
        verb: a method of `pending.AsyncRecords`, "draw" a fence before a promotion, or a step on a line.
        id: the record; empty for "list".
        args: (units, capacity) to create; (state,) to update; (fence,) to promote, 0 if the store gives it; (units,
            capacity, wait, again) to enter a line.
    """

    verb: str
    id: str = ""
    args: tuple[Any, ...] = ()


ON_LINE = ("enter", "leave", "extend")
"""The verbs that are atomic steps on a line."""


class ModelRecords:
    """A record store whose requests the world performs.

    Args:
        draws: True if a fence is drawn before the promotion.
    """

    __slots__ = ("_draws",)
    poll_after = 1.0

    def __init__(self, draws: bool) -> None:
        self._draws = draws

    async def create(self, claim: Claim) -> None:
        """As `pending.AsyncRecords.create`."""
        await effect(Ask("create", claim.id, (claim.spec.units, claim.spec.capacity)))

    async def list(self, key: str) -> Any:
        """As `pending.AsyncRecords.list`."""
        return await effect(Ask("list"))

    async def update(self, claim: Claim, state: State) -> bool:
        """As `pending.AsyncRecords.update`."""
        return bool(await effect(Ask("update", claim.id, (state,))))

    async def promote(self, claim: Claim) -> Any:
        """As `pending.AsyncRecords.promote`."""
        fence = await effect(Ask("draw", claim.id)) if self._draws else 0
        return await effect(Ask("promote", claim.id, (fence,)))

    async def delete(self, claim: Claim) -> bool:
        """As `pending.AsyncRecords.delete`."""
        return bool(await effect(Ask("delete", claim.id)))

    async def reap(self, key: str, id: str) -> None:
        """As `pending.AsyncRecords.reap`."""
        await effect(Ask("reap", id))

    async def renew(self, claims: Sequence[Claim]) -> Any:
        """As `pending.AsyncRecords.renew`; the checker's callers renew one claim at a time."""
        (claim,) = claims
        return await effect(Ask("renew", claim.id))


class RecordQueue:
    """`storekit._async.record_queue` without its waiters.

    Args:
        protocol: the protocol on records.
    """

    __slots__ = ("_protocol",)

    def __init__(self, protocol: AsyncPending) -> None:
        self._protocol = protocol

    def subscribe(self) -> AsyncWaiter:
        """Return a waiter for the caller."""
        return AsyncWaiter()

    async def enter(self, claim: Claim, waiter: Any, may_queue: bool, already_queued: bool) -> EnterResult:
        """As `AsyncPending.enter`."""
        return await self._protocol.enter(claim, may_queue, already_queued)

    async def leave(self, claim: Claim) -> bool:
        """As `AsyncRecords.delete`."""
        return await self._protocol.records.delete(claim)

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """As `AsyncRecords.renew`."""
        return list(await self._protocol.records.renew(claims))
