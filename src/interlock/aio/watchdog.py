"""Renewal of leases for asyncio tasks: timers on the loop, and no task while nothing is due."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from interlock import log
from interlock.aengine import arun
from interlock.errors import LockError
from interlock.grants import GONE_THERE, BaseGrant
from interlock.protocols.queue import Queue
from interlock.roster import LONGEST_SLEEP, Roster

G = TypeVar("G", bound=BaseGrant)


class LoopWatchdog(Generic[G]):
    """Renews the grants of one connection on one event loop, by timers; no task while nothing is due.

    Args:
        queue: the store.
        tell_lost: called once, on the loop, for each grant that is lost.
    """

    def __init__(self, queue: Queue, tell_lost: Callable[[G], None]) -> None:
        self._queue = queue
        self._roster = Roster(tell_lost)
        self.loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf
        self._task: asyncio.Task[Any] | None = None

    @property
    def grants(self) -> list[G]:
        """The grants under watch."""
        return list(self._roster.grants.values())

    def add(self, grant: G) -> None:
        """Watch over `grant` from now on."""
        self._roster.grants[grant.id] = grant
        if grant._due < self._wakes_at and self._task is None:
            self._schedule(grant._due)

    def remove(self, grant: G) -> None:
        """Stop watching; safe to repeat."""
        self._roster.grants.pop(grant.id, None)

    def lost(self, grant: G) -> None:
        """Note that the store no longer has the grant's claim, and tell."""
        self._roster.lost(grant, GONE_THERE)

    def stop(self) -> None:
        """Cancel what is scheduled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()

    def _schedule(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = moment
        delay = min(LONGEST_SLEEP, max(0.0, moment - time.monotonic()))
        self._timer = self.loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wakes_at = math.inf
        now = time.monotonic()
        due = self._roster.split(self._roster.due(now), now)
        if due:
            self._task = self.loop.create_task(self._renew(due), name="interlock-watchdog")
        else:
            self._rest()

    def _rest(self) -> None:
        upcoming = self._roster.next_due()
        if upcoming < math.inf:
            self._schedule(upcoming)

    async def _renew(self, grants: list[G]) -> None:
        sent = time.monotonic()
        deadline = min(grant._deadline for grant in grants)
        try:
            async with asyncio.timeout(max(0.0, deadline - sent)):
                answers = await arun(self._queue.renew([grant._claim for grant in grants]))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._roster.failed(grants, error, time.monotonic())
            if not isinstance(error, (LockError, TimeoutError)):
                log.exception("unexpected error while renewing")
        else:
            self._roster.answered(grants, answers, sent)
        finally:
            self._task = None
        self._rest()
