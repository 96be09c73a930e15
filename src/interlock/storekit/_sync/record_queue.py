# Generated from _async/record_queue.py by tools/unasync.py; change that one.
"""A queue on a store of records, by the pending protocol.

A release notifies the waiters of its own process only; waiters in other processes poll.
"""

import random
from collections.abc import Sequence
from typing import Any

from interlock.core._sync.pending import NEIGHBOUR_PAUSE, Pending
from interlock.core.claims import Claim
from interlock.core.queue import EnterResult, Renewed, Wakeable
from interlock.runtime import _threads as rt

JITTER = 0.5  # a waiter polls after a random part of `poll_after`, at least this one


class RecordQueue:
    """A queue on records; its store lacks `detach` and `once`, so it has neither `adopt` nor `run_result` and
    `delete_run_result`.

    Args:
        records: where the claims are kept: `Records` of the protocol, and what the queue only passes on, `look`,
            `evict`, `namespaces`, `doctor`, `close`, `abort` and `rest`.
    """

    def __init__(self, records: Any) -> None:
        self._records = records
        self._protocol = Pending(records)
        self._waiting: dict[str, tuple[str, Wakeable]] = {}
        self.close_idle = records.close_idle
        self.abort = records.abort
        self.look, self.evict, self.namespaces = records.look, records.evict, records.namespaces
        self.doctor = records.doctor
        self.close = records.close

    def subscribe(self) -> Any:
        return rt.Waiter()

    def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        if waiter is not None:  # before the first look: the lock may be released during it
            self._waiting[claim.id] = claim.spec.key, waiter
        answer = self._protocol.enter(claim, may_queue, already_queued)
        if answer.state != "pending":
            self._waiting.pop(claim.id, None)
        elif answer.poll_after > NEIGHBOUR_PAUSE:
            answer = answer._replace(poll_after=answer.poll_after * random.uniform(JITTER, 1.0))
        return answer

    def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        self._waiting.pop(claim.id, None)
        removed: bool = self._records.delete(claim)
        for key, waiter in list(self._waiting.values()):
            if key == claim.spec.key:
                waiter.wake()
        return removed

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        return list(self._records.renew(claims))
