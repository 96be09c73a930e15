"""Renewal of leases for threads: one thread for each connection, started with its first grant.

Many claims go in one request.  A renewal that fails is tried again until the real deadline; only then is the grant
lost, and whoever asked for it is told.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from interlock import log
from interlock.engine import run
from interlock.errors import LockError
from interlock.grants import GONE_THERE, BaseGrant
from interlock.protocols.queue import Queue
from interlock.roster import LONGEST_SLEEP, SHORTEST_RETRY, Roster

G = TypeVar("G", bound=BaseGrant)


class Watchdog(Generic[G]):
    """Renews the grants of one connection in a thread of its own, which starts with the first grant.

    Args:
        queue: the store.
        tell_lost: called once, in the watchdog's thread, for each grant that is lost.
    """

    def __init__(self, queue: Queue, tell_lost: Callable[[G], None]) -> None:
        self._queue = queue
        self._roster = Roster(tell_lost)
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wakes_at = math.inf
        self._alarm = math.inf
        self._interval = math.inf
        self._active = False
        self._stopped = False

    @property
    def grants(self) -> list[G]:
        """The grants under watch."""
        return list(self._roster.grants.values())

    def add(self, grant: G) -> None:
        """Watch over `grant` from now on."""
        self._roster.grants[grant.id] = grant
        self._active = True
        if grant._due < self._wakes_at:
            self._alarm = grant._due
            self._interval = max(SHORTEST_RETRY, grant._due - time.monotonic())
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
                        log.warn("no thread to renew leases with: %s; they end after their ttl", error)
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
            self._wakes_at = self._next_look(now)
            self._bell.wait(min(LONGEST_SLEEP, max(0.0, self._wakes_at - time.monotonic())))

    def _next_look(self, now: float) -> float:
        """Return when to look again.

        While grants come and go, it looks at intervals even if it saw none: waking the thread for each short one
        would cost more than the lock itself.
        """
        moment = self._roster.next_due()
        if self._alarm > now:
            moment = min(moment, self._alarm)
        if moment == math.inf and self._active:
            moment = now + self._interval
        self._active = False
        return moment

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
