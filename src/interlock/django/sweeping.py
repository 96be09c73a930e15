"""Clears the table of claims of what is over."""

import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from django.db import IntegrityError

from interlock.core.claims import USING
from interlock.core.errors import StoreError
from interlock.django import claimlines
from interlock.django.performing import Performer
from interlock.django.statements import MICROSECONDS
from interlock.runtime import log
from interlock.runtime.process import WeakRegistry, in_forked_child

SWEEP_EVERY = 64  # releases of a store, from its first: programs that release once clear up too
SWEEP_MOST = 1000  # records that one release clears away
SWEEP_AGE = 60.0  # seconds that a lease has been over before a release of another name ends its claim


class Sweeper:
    """What clears up for one store.

    Args:
        performer: of its statements.
        remove_lapsed: ends a claim whose lease is over; None if that was not to be done.
    """

    def __init__(self, performer: Performer, remove_lapsed: Callable[[str], object | None]) -> None:
        self._performer = performer
        self._remove_lapsed = remove_lapsed
        self._sweeping = threading.Lock()
        self._releases = count()
        _sweepers.add(self)

    def released(self) -> None:
        """Sweep a bounded number of records at every so many releases."""
        if next(self._releases) % SWEEP_EVERY == 0:
            try:
                self.sweep(SWEEP_MOST, SWEEP_AGE)
            except StoreError as error:
                log.warn("could not sweep old records, later perhaps: %s", error)

    def sweep(self, most: int = sys.maxsize, age: float = 0.0) -> int:
        """Delete records that are over, after having noted the highest of their fences, and end leases that ran out.

        Args:
            most: records to look at, in thousands rounded up.
            age: seconds that a lease must have been over.

        Returns:
            How many records were deleted.
        """
        if not self._sweeping.acquire(blocking=False):
            return 0
        try:
            swept: int = self._reap_all(most, age)
            while True:
                looked, deleted = self._performer.do(self._sweep_some)
                swept += deleted
                if looked < SWEEP_MOST or swept >= most:
                    return swept
        finally:
            self._sweeping.release()

    def _reap_all(self, most: int, age: float) -> int:
        """End claims whose leases ran out, also of names that nobody asks for any more; return how many waited."""
        rows = self._performer.rows(claimlines.run_out, most, age=int(age * MICROSECONDS))
        return sum(self._remove_lapsed(id) is not None and state != USING for id, state in rows)

    def _sweep_some(self, connection: Any) -> tuple[int, int]:
        rows = self._performer.statement(connection, claimlines.oldest_done, SWEEP_MOST).rows(connection)
        if not rows:
            return 0, 0
        top = max(fence for _, fence in rows)
        if not self._performer.statement(connection, claimlines.raise_floor).count(connection, fence=top):
            try:
                self._performer.statement(connection, claimlines.lay_floor).count(connection, fence=top)
            except IntegrityError:
                pass  # it is there: as high, or somebody just made it
        floor = self._performer.statement(connection, claimlines.floor).rows(connection)[0][0]
        last = max(number for number, _ in rows)
        deleted = self._performer.statement(connection, claimlines.sweep).count(connection, fence=floor, number=last)
        return len(rows), deleted

    def forked(self) -> None:
        """In a forked child: a thread of the parent that just sweeps is not here."""
        self._sweeping = threading.Lock()


_sweepers: WeakRegistry[Sweeper] = WeakRegistry()


def _after_fork() -> None:
    for each in _sweepers:
        each.forked()


in_forked_child(_after_fork)
