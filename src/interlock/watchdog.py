"""Renewal of leases: one thread for each sync connection, timers on the loop for each asyncio one.

Many claims go in one request.  A renewal that fails is tried again until the real deadline; only then is the grant
lost, and whoever asked for it is told.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from interlock.claims import pid
from interlock.engine import arun, run
from interlock.errors import LockError
from interlock.grants import BaseGrant
from interlock.protocols.queue import Queue

log = logging.getLogger("interlock")
G = TypeVar("G", bound=BaseGrant)
LONGEST_SLEEP = 3600.0
SHORTEST_RETRY = 0.02
GONE_THERE = "the store no longer has its claim: it expired there or was evicted"
LEASE_ENDED = "its lease ended before it was renewed"


class _Roster(Generic[G]):
    """The grants under watch, and what the answer to a renewal means for each."""

    def __init__(self, tell_lost: Callable[[G], None]) -> None:
        self.grants: dict[str, G] = {}
        self._tell_lost = tell_lost

    def due(self, now: float) -> list[G]:
        return [grant for grant in list(self.grants.values()) if grant._due <= now]

    def next_due(self) -> float:
        return min((grant._due for grant in list(self.grants.values())), default=math.inf)

    def split(self, grants: Iterable[G], now: float) -> list[G]:
        """Drop those whose time is over, and return the others that are to be renewed."""
        renewable = []
        for grant in grants:
            if now >= grant._deadline:
                self.lost(grant, LEASE_ENDED)
            elif grant._renews:
                renewable.append(grant)
            else:
                grant._due = grant._deadline
        return renewable

    def answered(self, grants: Sequence[G], answers: Sequence[bool], sent: float) -> None:
        for grant, alive in zip(grants, answers, strict=True):
            if alive:
                grant._renewed(sent)
            else:
                self.lost(grant, GONE_THERE)

    def failed(self, grants: Sequence[G], error: Exception, now: float) -> None:
        for grant in grants:
            grant._due = min(grant._deadline, now + max(SHORTEST_RETRY, grant._claim.terms.ttl / 20))
        log.warning("renewing %d lease(s) failed, trying again: %s", len(grants), error)

    def lost(self, grant: G, why: str) -> None:
        if self.grants.pop(grant.id, None) is None:
            return  # it is being released: not lost
        grant._lose(why)
        try:
            self._tell_lost(grant)
        except Exception:
            log.exception("on_lost of %r failed", grant)


class Watchdog(Generic[G]):
    """Renews the grants of one connection in a thread of its own, which starts with the first grant.

    Args:
        queue: the store.
        tell_lost: called once, in the watchdog's thread, for each grant that is lost.
    """

    def __init__(self, queue: Queue, tell_lost: Callable[[G], None]) -> None:
        self._queue = queue
        self._roster = _Roster(tell_lost)
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wakes_at = math.inf
        self._stopped = False

    @property
    def grants(self) -> list[G]:
        """The grants under watch."""
        return list(self._roster.grants.values())

    def add(self, grant: G) -> None:
        """Watch over `grant` from now on."""
        self._roster.grants[grant.id] = grant
        if grant._due < self._wakes_at:
            self._poke()

    def remove(self, grant: G) -> None:
        """Stop watching; safe to repeat."""
        self._roster.grants.pop(grant.id, None)

    def lost(self, grant: G) -> None:
        """Note that the store no longer has the grant's claim, and tell."""
        self._roster.lost(grant, GONE_THERE)

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._bell.set()

    def _poke(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._loop, name="interlock-watchdog", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:  # the interpreter is shutting down
                        log.warning("no thread to renew leases with: %s; they end after their ttl", error)
                        return
                    self._thread = thread
        self._bell.set()

    def _loop(self) -> None:
        while not self._stopped:
            self._bell.clear()
            self._wakes_at = math.inf  # whoever adds a grant from here on rings
            now = time.monotonic()
            due = self._roster.due(now)
            if due:
                self._renew(self._roster.split(due, now))
                continue
            self._wakes_at = self._roster.next_due()
            self._bell.wait(min(LONGEST_SLEEP, max(0.0, self._wakes_at - time.monotonic())))

    def _renew(self, grants: list[G]) -> None:
        if not grants:
            return
        sent = time.monotonic()
        try:
            answers = run(self._queue.renew([grant._claim for grant in grants]))
        except Exception as error:
            self._roster.failed(grants, error, time.monotonic())
            if not isinstance(error, LockError):
                log.exception("unexpected error while renewing")
        else:
            self._roster.answered(grants, answers, sent)


class LoopWatchdog(Generic[G]):
    """Renews the grants of one connection on one event loop, by timers; no task while nothing is due.

    Args:
        queue: the store.
        tell_lost: called once, on the loop, for each grant that is lost.
    """

    def __init__(self, queue: Queue, tell_lost: Callable[[G], None]) -> None:
        self._queue = queue
        self._roster = _Roster(tell_lost)
        self._loop = asyncio.get_running_loop()
        self._pid = pid()
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
        self._timer = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wakes_at = math.inf
        now = time.monotonic()
        due = self._roster.split(self._roster.due(now), now)
        if due:
            self._task = self._loop.create_task(self._renew(due), name="interlock-watchdog")
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
