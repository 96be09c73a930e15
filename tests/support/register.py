"""A real register in memory, so that the pending protocol runs for real in the contract suite.

It is as dumb as a store may be: every method is one short atomic step, and between two of them anybody may act.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from interlock.client.base import name_of
from interlock.core.claims import PENDING, QUEUED, USING, Check, Claim, ClaimView, State, fits, keys_of
from interlock.core.effects import Call
from interlock.core.pending import Pending, Record
from interlock.runtime.aio import TaskEvent
from interlock.runtime.process import HOST, pid
from interlock.runtime.sync import ThreadEvent, step_under


@dataclass(slots=True)
class _Row:
    """A record as it lies in memory; `order` is its place in the order of arrival."""

    claim: Claim
    order: int
    until: float
    wakeup: Any
    state: State = PENDING
    fence: int = 0
    since: float = field(default_factory=time.time)
    held_since: float | None = None


class MemoryRegister:
    """The records of a dumb store, in memory, for threads and tasks of one process.

    Args:
        folds: True if it can promote a claim and look for others in one step.
        poll: seconds after which a waiter that nobody told looks again.
        clock: the store's clock, in seconds.
    """

    def __init__(self, folds: bool = False, poll: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self.folds = folds
        self.poll = poll
        self._clock = clock
        self._mutex: Any = threading.RLock()
        self._rows: dict[str, dict[str, _Row]] = {}
        self._arrivals = 0
        self._fence = 0

    def _step(self) -> Any:
        return step_under(self._mutex)

    # -- requests, as `core.pending.Register` has them ---------------------------------------------

    def create(self, claim: Claim, wakeup: Any) -> Call:
        return Call(self._create, (claim, wakeup))

    def list(self, key: str) -> Call:
        return Call(self._list, (key,))

    def update(self, claim: Claim, state: State) -> Call:
        return Call(self._update, (claim, state))

    def promote(self, claim: Claim) -> Call:
        return Call(self._promote, (claim, False))

    def promote_if_free(self, claim: Claim) -> Call:
        return Call(self._promote, (claim, True))

    def delete(self, claim: Claim) -> Call:
        return Call(self._delete, (claim,))

    def reap(self, key: str, id: str) -> Call:
        return Call(self._reap, (key, id))

    def renew(self, claims: Sequence[Claim], wakeup: Any) -> Call:
        return Call(self._renew, (claims, wakeup))

    def look(self, key: str) -> Call:
        return Call(self._look, (key,))

    def evict(self, key: str, id: str | None) -> Call:
        return Call(self._evict, (key, id))

    # -- what performs them, each under the mutex -------------------------------------------------------

    def _create(self, claim: Claim, wakeup: Any) -> None:
        with self._step():
            rows = self._rows.setdefault(claim.spec.key, {})
            if claim.id not in rows:
                self._arrivals += 1
                rows[claim.id] = _Row(claim, self._arrivals, self._clock() + claim.spec.ttl, wakeup)

    def _list(self, key: str) -> Sequence[Record]:
        with self._step():
            now = self._clock()
            return [_record(row, now) for row in self._rows.get(key, {}).values()]

    def _update(self, claim: Claim, state: State) -> bool:
        with self._step():
            row = self._live(claim)
            if row is None or row.state == USING:
                return False
            row.state = state
            if state == QUEUED:
                self._wake(claim.spec.key)
            return True

    def _promote(self, claim: Claim, only_if_free: bool) -> int | None:
        with self._step():
            row = self._live(claim)
            if row is None or row.state != PENDING or (only_if_free and not self._is_free(row)):
                return None
            self._fence += 1
            row.state, row.fence, row.held_since = USING, self._fence, time.time()
            self._wake(claim.spec.key)  # the next may fit beside it
            return self._fence

    def _is_free(self, mine: _Row) -> bool:
        now = self._clock()
        spec = mine.claim.spec
        against = [
            (row.claim.spec.units, row.claim.spec.capacity)
            for row in self._rows[spec.key].values()
            if row is not mine and row.until > now and (row.state != QUEUED or row.order < mine.order)
        ]
        return fits(spec.units, spec.capacity, against)

    def _delete(self, claim: Claim) -> bool:
        with self._step():
            row = self._rows.get(claim.spec.key, {}).get(claim.id)
            if row is None:
                return False
            alive = row.until > self._clock()
            self._remove(claim.spec.key, claim.id)
            return alive

    def _reap(self, key: str, id: str) -> bool:
        with self._step():
            row = self._rows.get(key, {}).get(id)
            if row is None or row.until > self._clock():
                return False
            self._remove(key, id)
            return True

    def _renew(self, claims: Sequence[Claim], wakeup: Any) -> Sequence[bool]:
        with self._step():
            rows = [self._live(claim) for claim in claims]
            for row in rows:
                if row is not None:
                    row.until = self._clock() + row.claim.spec.ttl
                    row.wakeup = wakeup or row.wakeup
            return [row is not None for row in rows]

    def _look(self, key: str) -> Sequence[ClaimView]:
        with self._step():
            now = self._clock()
            rows = [row for each in keys_of(key, sorted(self._rows)) for row in self._in_line(each)]
            return [_view(row, now) for row in rows if row.until > now]

    def _evict(self, key: str, id: str | None) -> int:
        with self._step():
            victims = [row for row in self._in_line(key) if id is None or row.claim.id == id]
            for row in victims:
                self._remove(key, row.claim.id)
                if row.wakeup is not None:
                    row.wakeup.tell()
            return len(victims)

    # -- parts; the caller has the mutex ----------------------------------------------------------------

    def _live(self, claim: Claim) -> _Row | None:
        row = self._rows.get(claim.spec.key, {}).get(claim.id)
        return row if row is not None and row.until > self._clock() else None

    def _in_line(self, key: str) -> Sequence[_Row]:
        return sorted(self._rows.get(key, {}).values(), key=lambda row: (row.state != USING, row.order))

    def _remove(self, key: str, id: str) -> None:
        rows = self._rows[key]
        del rows[id]
        if not rows:
            del self._rows[key]
        self._wake(key)

    def _wake(self, key: str) -> None:
        """Tell the head of the waiting line, and nobody else, to look again."""
        now = self._clock()
        waiting = (row for row in self._in_line(key) if row.state != USING and row.until > now)
        head = next(waiting, None)
        if head is not None and head.wakeup is not None:
            head.wakeup.tell()


class RegisterStore(Pending):
    """A store made of a register and the pending protocol.

    Args:
        register: where the records are kept; several stores may share it.
    """

    def thread_wakeup(self) -> ThreadEvent:
        """Return a wake-up for the calling thread."""
        return ThreadEvent()

    def task_wakeup(self) -> TaskEvent:
        """Return a wake-up for the calling task."""
        return TaskEvent()

    def doctor(self) -> list[Check]:
        return [Check("reach", "warn", "a register in memory is seen by this process only; use it for tests")]

    def close(self) -> None:
        """Nothing to close: the register lives as long as somebody refers to it."""


def _record(row: _Row, now: float) -> Record:
    spec = row.claim.spec
    return Record(row.claim.id, row.order, spec.units, spec.capacity, row.state, row.fence, row.until <= now)


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
