# Generated from _async/record_queue.py by tools/unasync.py; change that one.
"""A queue on a store of records, by the pending protocol.

A release notifies the waiters of its own process only; waiters in other processes poll.
"""

import random
from collections.abc import Sequence
from typing import Protocol

from interlock.core._sync.pending import NEIGHBOUR_PAUSE, Pending, Records
from interlock.core._sync.protocols import Queue, Waiting
from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.queue import EnterResult, Renewed, Wakeable
from interlock.runtime import _threads as rt

JITTER = 0.5  # a waiter polls after a random part of `poll_after`, at least this part


class RecordTable(Records, Protocol):
    """Records, with the methods that the queue passes through."""

    def look(self, key: str) -> Sequence[ClaimView]:
        """Return like `Queue.look`."""

    def evict(self, key: str, id: str | None) -> int:
        """Return like `Queue.evict`."""

    def namespaces(self) -> Sequence[str]:
        """Return like `Queue.namespaces`."""

    def doctor(self) -> Sequence[Check]:
        """Return like `Queue.doctor`."""

    def close_idle(self) -> object:
        """Close like `Queue.close_idle`."""

    def close(self) -> None:
        """Close like `Queue.close`."""

    def abort(self) -> None:
        """Close like `Queue.abort`."""


class RecordQueue(Queue):
    """A queue on records; it lacks `detach` and `once`.

    Args:
        records: the store of the claims.
    """

    def __init__(self, records: RecordTable) -> None:
        self._records = records
        self._protocol = Pending(records)
        self._waiting: dict[str, tuple[str, Wakeable]] = {}

    def subscribe(self) -> Waiting:
        return rt.Waiter()

    def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        if waiter is not None:  # before the first list, because the lock may be released during it
            self._waiting[claim.id] = claim.spec.key, waiter
        answer = self._protocol.enter(claim, may_queue, already_queued)
        if answer.state != "pending":
            self._waiting.pop(claim.id, None)
        elif answer.poll_after > NEIGHBOUR_PAUSE:
            answer = answer._replace(poll_after=answer.poll_after * random.uniform(JITTER, 1.0))
        return answer

    def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        self._waiting.pop(claim.id, None)
        removed = self._records.delete(claim)
        for key, waiter in list(self._waiting.values()):
            if key == claim.spec.key:
                waiter.wake()
        return removed

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        return list(self._records.renew(claims))

    def look(self, key: str) -> list[ClaimView]:
        return list(self._records.look(key))

    def evict(self, key: str, id: str | None) -> int:
        return self._records.evict(key, id)

    def namespaces(self) -> list[str]:
        return list(self._records.namespaces())

    def doctor(self) -> list[Check]:
        return list(self._records.doctor())

    def close_idle(self) -> object:
        return self._records.close_idle()

    def close(self) -> None:
        self._records.close()

    def abort(self) -> None:
        self._records.abort()
