"""A queue on a store of records, by the pending protocol.

A release notifies the waiters of its own process only; waiters in other processes poll.
"""

import random
from collections.abc import Sequence
from typing import Protocol

from interlock.core._async.pending import NEIGHBOUR_PAUSE, AsyncPending, AsyncRecords
from interlock.core._async.protocols import AsyncQueue, AsyncWaiting
from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.queue import EnterResult, Renewed, Wakeable
from interlock.runtime import _aio as rt

JITTER = 0.5  # a waiter polls after a random part of `poll_after`, at least this part


class AsyncRecordTable(AsyncRecords, Protocol):
    """Records, with the methods that the queue passes through."""

    async def look(self, key: str) -> Sequence[ClaimView]:
        """Return like `AsyncQueue.look`."""

    async def evict(self, key: str, id: str | None) -> int:
        """Return like `AsyncQueue.evict`."""

    async def namespaces(self) -> Sequence[str]:
        """Return like `AsyncQueue.namespaces`."""

    async def doctor(self) -> Sequence[Check]:
        """Return like `AsyncQueue.doctor`."""

    def close_idle(self) -> object:
        """Close like `AsyncQueue.close_idle`."""

    async def aclose(self) -> None:
        """Close like `AsyncQueue.aclose`."""

    def abort(self) -> None:
        """Close like `AsyncQueue.abort`."""


class AsyncRecordQueue(AsyncQueue):
    """A queue on records; it lacks `detach` and `once`.

    Args:
        records: the store of the claims.
    """

    def __init__(self, records: AsyncRecordTable) -> None:
        self._records = records
        self._protocol = AsyncPending(records)
        self._waiting: dict[str, tuple[str, Wakeable]] = {}

    def subscribe(self) -> AsyncWaiting:
        return rt.AsyncWaiter()

    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        if waiter is not None:  # before the first list, because the lock may be released during it
            self._waiting[claim.id] = claim.spec.key, waiter
        answer = await self._protocol.enter(claim, may_queue, already_queued)
        if answer.state != "pending":
            self._waiting.pop(claim.id, None)
        elif answer.poll_after > NEIGHBOUR_PAUSE:
            answer = answer._replace(poll_after=answer.poll_after * random.uniform(JITTER, 1.0))
        return answer

    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        self._waiting.pop(claim.id, None)
        removed = await self._records.delete(claim)
        for key, waiter in list(self._waiting.values()):
            if key == claim.spec.key:
                waiter.wake()
        return removed

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        return list(await self._records.renew(claims))

    async def look(self, key: str) -> list[ClaimView]:
        return list(await self._records.look(key))

    async def evict(self, key: str, id: str | None) -> int:
        return await self._records.evict(key, id)

    async def namespaces(self) -> list[str]:
        return list(await self._records.namespaces())

    async def doctor(self) -> list[Check]:
        return list(await self._records.doctor())

    def close_idle(self) -> object:
        return self._records.close_idle()

    async def aclose(self) -> None:
        await self._records.aclose()

    def abort(self) -> None:
        self._records.abort()
