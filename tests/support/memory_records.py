"""Records in memory, so that the contract suite runs on the pending protocol, in both colours.

The store is as simple as allowed: every method is one atomic step, and other callers may act between two of them.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from interlock.core.claims import PENDING, USING, Check, Claim, ClaimView, State, keys_of, name_of, namespace_of
from interlock.core.errors import UnknownOutcome
from interlock.core.queue import Feature, PendingRecord, Renewed
from interlock.runtime import clock
from interlock.runtime.process import HOST, pid
from interlock.storekit._async.record_queue import AsyncRecordTable
from interlock.storekit._sync.record_queue import RecordTable
from interlock.storekit.store import Store

if TYPE_CHECKING:
    from interlock.storekit._async.record_queue import AsyncRecordQueue
    from interlock.storekit._sync.record_queue import RecordQueue


Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Row:
    """A record in memory; `order` is its place in the order of arrival."""

    claim: Claim
    order: int
    until: float
    state: State = PENDING
    fence: int = 0
    since: float = field(default_factory=time.time)
    held_since: float | None = None


class MemoryRecords(RecordTable):
    """A record store in memory, for threads and tasks of one process.

    Args:
        poll_after: seconds after which a waiter polls unless it was notified.
        now: the store's clock, in seconds.
    """

    def __init__(self, poll_after: float = 0.4, now: Callable[[], float] = clock.now) -> None:
        self.poll_after = poll_after
        self._now = now
        self._mutex = threading.RLock()
        self._rows: dict[str, dict[str, _Row]] = {}
        self._arrivals = self._fence = 0

    def create(self, claim: Claim) -> None:
        with self._mutex:
            rows = self._rows.setdefault(claim.spec.key, {})
            if claim.id not in rows:
                self._arrivals += 1
                rows[claim.id] = _Row(claim, self._arrivals, self._now() + claim.spec.ttl)

    def list(self, key: str) -> Sequence[PendingRecord]:
        with self._mutex:
            now = self._now()
            return [_record(row, now) for row in self._rows.get(key, {}).values()]

    def update(self, claim: Claim, state: State) -> bool:
        with self._mutex:
            row = self._live(claim)
            if row is not None:
                row.state = state
            return row is not None

    def promote(self, claim: Claim) -> int | None:
        with self._mutex:
            row = self._live(claim)
            if row is None or row.state != PENDING:
                return None
            self._fence += 1
            row.state, row.fence, row.held_since = USING, self._fence, time.time()
            return self._fence

    def delete(self, claim: Claim) -> bool:
        with self._mutex:
            return self._rows.get(claim.spec.key, {}).pop(claim.id, None) is not None

    def reap(self, key: str, id: str) -> None:
        with self._mutex:
            row = self._rows.get(key, {}).get(id)
            if row is not None and row.until <= self._now():
                del self._rows[key][id]

    def renew(self, claims: Sequence[Claim]) -> Sequence[int]:
        with self._mutex:
            rows = [self._live(claim) for claim in claims]
            for row in rows:
                if row is not None:
                    row.until = self._now() + row.claim.spec.ttl
            return [int(row is not None) for row in rows]

    def look(self, key: str) -> Sequence[ClaimView]:
        with self._mutex:
            now = self._now()
            rows = [row for each in keys_of(key, sorted(self._rows)) for row in self._in_line(each)]
            return [_view(row, now) for row in rows if row.until > now]

    def evict(self, key: str, id: str | None) -> int:
        with self._mutex:
            victims = [row for row in self._in_line(key) if id is None or row.claim.id == id]
            return sum(self.delete(row.claim) for row in victims)

    def namespaces(self) -> Sequence[str]:
        with self._mutex:
            return sorted({namespace_of(key) for key in self._rows if self.look(key)})

    def doctor(self) -> Sequence[Check]:
        return [Check("reach", "warn", "records in memory are seen by this process only; use them for tests")]

    def close_idle(self) -> None:
        """Do nothing: there are no connections."""

    abort = close = close_idle

    def _live(self, claim: Claim) -> _Row | None:
        row = self._rows.get(claim.spec.key, {}).get(claim.id)
        return row if row is not None and row.until > self._now() else None

    def _in_line(self, key: str) -> Sequence[_Row]:
        return sorted(self._rows.get(key, {}).values(), key=lambda row: (row.state != USING, row.order))


class LossyRecords(MemoryRecords):
    """Records that perform all requests, and lose the replies to some of them.

    Attributes:
        lose: tells whether the reply to the request with this number is lost.
        asked: the number of requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lose: Callable[[int], bool] = lambda number: False
        self.asked = 0

    def lose_from_now(self, *numbers: int) -> None:
        """Lose the replies to the requests with these numbers, counted from now, from 1."""
        self.asked = 0
        self.lose = lambda number: number in numbers

    def _reply(self, answer: Answer) -> Answer:
        self.asked += 1
        if self.lose(self.asked):
            raise UnknownOutcome("a reply was lost, by order of the test")
        return answer

    def create(self, claim: Claim) -> None:
        super().create(claim)
        self._reply(None)

    def list(self, key: str) -> Sequence[PendingRecord]:
        return self._reply(super().list(key))

    def update(self, claim: Claim, state: State) -> bool:
        return self._reply(super().update(claim, state))

    def promote(self, claim: Claim) -> int | None:
        return self._reply(super().promote(claim))

    def delete(self, claim: Claim) -> bool:
        return self._reply(super().delete(claim))

    def reap(self, key: str, id: str) -> None:
        super().reap(key, id)
        self._reply(None)

    def renew(self, claims: Sequence[Claim]) -> Sequence[int]:
        return self._reply(super().renew(claims))


class RecordsOfTasks(AsyncRecordTable):
    """The same for the queue of tasks."""

    def __init__(self, records: MemoryRecords) -> None:
        self._records = records
        self.poll_after = records.poll_after

    async def create(self, claim: Claim) -> None:
        self._records.create(claim)

    async def list(self, key: str) -> Sequence[PendingRecord]:
        return self._records.list(key)

    async def update(self, claim: Claim, state: State) -> bool:
        return self._records.update(claim, state)

    async def promote(self, claim: Claim) -> int | None:
        return self._records.promote(claim)

    async def delete(self, claim: Claim) -> bool:
        return self._records.delete(claim)

    async def reap(self, key: str, id: str) -> None:
        self._records.reap(key, id)

    async def renew(self, claims: Sequence[Claim]) -> Sequence[Renewed]:
        return self._records.renew(claims)

    async def look(self, key: str) -> Sequence[ClaimView]:
        return self._records.look(key)

    async def evict(self, key: str, id: str | None) -> int:
        return self._records.evict(key, id)

    async def namespaces(self) -> Sequence[str]:
        return self._records.namespaces()

    async def doctor(self) -> Sequence[Check]:
        return self._records.doctor()

    def close_idle(self) -> None:
        self._records.close_idle()

    async def aclose(self) -> None:
        self._records.close()

    def abort(self) -> None:
        self._records.abort()


class RecordsStore(Store):
    """A store of records in memory.

    Args:
        records: the records, which several stores may share.
    """

    features: frozenset[Feature] = frozenset({"readers", "semaphores", "order", "waiters"})
    in_process = True
    now = staticmethod(clock.now)

    def __init__(self, records: MemoryRecords) -> None:
        self._records = records

    def queue(self) -> "RecordQueue":
        from interlock.storekit._sync.record_queue import RecordQueue

        return RecordQueue(self._records)

    def aqueue(self) -> "AsyncRecordQueue":
        from interlock.storekit._async.record_queue import AsyncRecordQueue

        return AsyncRecordQueue(RecordsOfTasks(self._records))


def _record(row: _Row, now: float) -> PendingRecord:
    spec = row.claim.spec
    return PendingRecord(row.claim.id, row.order, spec.units, spec.capacity, row.state, row.fence, row.until <= now)


def _view(row: _Row, now: float) -> ClaimView:
    spec = row.claim.spec
    return ClaimView(
        name=name_of(spec.key),
        id=row.claim.id,
        state="using" if row.state == USING else "pending",
        units=spec.units,
        capacity=spec.capacity,
        fence=row.fence or None,
        host=HOST,
        pid=pid(),
        thread=row.claim.who,
        label=spec.label,
        since=row.since,
        expires_in=row.until - now,
        held_since=row.held_since,
    )
