"""A queue on a store of records, by the pending protocol.

A release notifies the waiters of its own process only; waiters in other processes poll.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from interlock.core._async.pending import AsyncPending
from interlock.core.claims import Claim
from interlock.core.queue import EnterResult, Renewed, Tells
from interlock.runtime import _aio as rt

JITTER = 0.5  # a waiter polls after a random part of `look_again`, at least this one


class AsyncRecordQueue:
    """A queue on records; its store lacks `detach` and `once`, so it has neither `adopt` nor `kept` and `forget`.

    Args:
        records: where the claims are kept: `AsyncRecords` of the protocol, and what the queue only passes on, `look`,
            `evict`, `namespaces`, `doctor`, `aclose`, `abort` and `rest`.
    """

    node_of = None

    def __init__(self, records: Any) -> None:
        self._records = records
        self._protocol = AsyncPending(records)
        self._waiting: dict[str, dict[str, Any]] = {}
        self._mutex = rt.Mutex()
        self.rest = records.rest
        self.abort = records.abort
        self.look, self.evict, self.namespaces = records.look, records.evict, records.namespaces
        self.doctor = records.doctor

    def set_doubt(self, doubt: Callable[[str], object]) -> None:
        """Do nothing: a read of the record always answers whether the claim exists."""

    def subscribe(self) -> Any:
        return rt.AsyncWaiter()

    async def enter(self, claim: Claim, waiter: Tells | None, wait: bool, again: bool) -> EnterResult:
        key = claim.spec.key
        if waiter is not None:
            with self._mutex:  # before the first look: the lock may be released during it
                self._waiting.setdefault(key, {})[claim.id] = waiter
        answer = await self._protocol.enter(claim, wait, again)
        if answer.state != "pending":
            self._waits_no_more(claim)
        elif answer.look_again == self._records.look_again:
            answer = answer._replace(look_again=answer.look_again * random.uniform(JITTER, 1.0))
        return answer

    def _waits_no_more(self, claim: Claim) -> None:
        with self._mutex:
            others = self._waiting.get(claim.spec.key)
            if others is not None:
                others.pop(claim.id, None)
                if not others:
                    del self._waiting[claim.spec.key]

    async def leave(self, claim: Claim, done: float = 0.0, value: str = "") -> bool:
        self._waits_no_more(claim)
        removed: bool = await self._records.delete(claim)
        with self._mutex:
            told = list(self._waiting.get(claim.spec.key, {}).values())
        for waiter in told:
            waiter.tell()
        return removed

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        return list(await self._records.renew(claims))

    async def aclose(self) -> None:
        await self._records.aclose()
