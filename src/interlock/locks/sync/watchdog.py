"""Renewal of leases for threads: one thread keeps time and tells losses, others ask the store.

No request stands before a deadline: a loss is told then, whatever a renewal waits for.  Many claims go in one
request.  A renewal that fails is tried again until the deadline; only then is the grant lost.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from interlock.core.claims import Claim
from interlock.core.errors import LockError
from interlock.core.oldstore import SyncStore
from interlock.locks.grants import BaseGrant
from interlock.locks.leases import LONGEST_SLEEP, SHORTEST_RETRY, Tell
from interlock.locks.sync.renewers import HANGS, Renewers, started
from interlock.locks.watchdog import BaseWatchdog
from interlock.runtime import log
from interlock.runtime.sync import run

G = TypeVar("G", bound=BaseGrant)
IDLE = 10.0  # seconds without anything to watch, after which the threads end


class Watchdog(BaseWatchdog[G]):
    """Renews the grants of one connection in threads of its own, which start when there is something to do.

    Args:
        queue: the store.
        tell_lost: called once for each grant that is lost; never fails.
        tell: called with grants, what happened to them, and why, if anybody listens; never fails.
        release: gives a grant back whose `with` block was left without it.
        keeper: the connection, which is kept as long as there is something to watch, so that the exit finds it.
    """

    def __init__(
        self,
        queue: SyncStore,
        tell_lost: Callable[[G], None],
        tell: Tell[G],
        release: Callable[[G], object],
        keeper: object,
    ) -> None:
        super().__init__(queue, tell_lost, tell, release, keeper)
        self._rests = queue.rest
        # A plain lock, free when it is rung: an interrupt in the middle of the Python code of an Event or a Condition
        # would leave its lock taken for good, and the main thread comes here.
        self._rung = threading.Lock()
        self._rung.acquire()
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        self._wakes_at = math.inf
        self._alarm = math.inf
        self._interval = math.inf
        self._active = False
        self._renewers: Renewers[G] = Renewers(queue.node_of, self._renew_due, self._ring, self._is_kept)

    def add(self, grant: G) -> None:
        """Watch over `grant` from now on."""
        self._table.add(grant)
        self._active = True
        if grant._due < self._wakes_at:
            self._alarm = grant._due
            self._interval = max(SHORTEST_RETRY, grant._due - time.monotonic())
            self._wake()

    def owner_of(self, id: str) -> object:
        """Return who acquired the claim `id`; None if it is not under watch."""
        watched = self._watched.get(id)
        return None if watched is None else watched[2]

    def release_later(self, grant: G) -> None:
        """Take the claim of `grant` out of the line at the end of its `at_least`; until then it stays."""
        self._table.stay(grant)
        if grant._free_at < self._wakes_at:
            self._wake()

    def doubt(self, id: str) -> bool:
        """Ask the store at once about a claim that it may not have any more; False if nobody here holds it."""
        held = self._table.doubt(id)
        if held:
            self._alarm = 0.0
            self._wake()
        return held

    def stop(self) -> None:
        """End the threads."""
        self._stopped = True
        self._ring()

    def _is_kept(self) -> bool:
        """True while there is a thread that keeps time."""
        return not self._stopped and self._thread is not None

    def _ring(self) -> None:
        """Wake the thread that keeps time."""
        try:
            self._rung.release()
        except RuntimeError:
            pass  # it was rung already

    # -- the thread that keeps time ---------------------------------------------------------------------

    def _wake(self) -> None:
        with self._starting:
            self._ring()
            if self._thread is None or not self._thread.is_alive():
                self._thread = started(self._keep_time, "interlock-watchdog")

    def _keep_time(self) -> None:
        ended = False
        try:
            while not self._stopped and not ended:
                self._tell_and_renew()
                ended = not self._rest()
        except BaseException:  # even SystemExit: all leases hang on this thread
            log.exception("unexpected error in the watchdog, which is started again")
            time.sleep(SHORTEST_RETRY)
        finally:
            self._wakes_at = math.inf
            self._renewers.wake_all()  # idle ones end too
            if not ended and not self._stopped:
                with self._starting:
                    self._thread = None
                    self._wake()

    def _tell_and_renew(self) -> None:
        self._rung.acquire(blocking=False)
        self._wakes_at = math.inf  # whoever adds a grant from here on rings
        now = time.monotonic()
        over = self._table.over(now)
        if over:
            started(partial(self._leave, over), "interlock-at-least")
        due = self._table.look(now)
        if due or self._renewers.behind:
            self._renewers.hand_over(due)

    def _rest(self) -> bool:
        """Wait for the next look; False if there was nothing to watch for so long that the thread may end."""
        now = time.monotonic()
        self._wakes_at = self._next_look(now)
        idle = self._wakes_at == math.inf
        rung = self._rung.acquire(timeout=IDLE if idle else min(LONGEST_SLEEP, max(0.0, self._wakes_at - now)))
        if rung or not idle:
            return True
        self._rests()
        with self._starting:
            if not self._rung.locked() or self._stopped:
                return True
            self._thread = None
            return False

    def _next_look(self, now: float) -> float:
        """Return when to look again.

        While grants come and go, it looks at intervals even if it saw none: waking the thread for each short one
        would cost more than the lock itself.
        """
        moment = self._table.next_due()
        if self._alarm > now:
            moment = min(moment, self._alarm)
        if moment == math.inf and self._active:
            moment = now + self._interval
        if self._renewers.behind:
            moment = min(moment, now + HANGS)
        self._active = False
        return moment

    # -- the threads that ask the store -----------------------------------------------------------------

    def _renew_due(self, grants: list[G]) -> None:
        try:
            self._renew(grants)
        except BaseException as error:  # even SystemExit: they are renewed by whoever comes next
            if not self._stopped:
                self._table.failed(grants, error, time.monotonic())
            if not isinstance(error, LockError):
                log.exception("unexpected error while renewing")

    def _renew(self, grants: list[G]) -> None:
        for grant in self._table.take_abandoned(grants):
            self._give_back(grant)
        grants[:] = [grant for grant in grants if grant.id in self._watched]  # the others have ended meanwhile
        if grants:
            sent = time.monotonic()
            answers = run(self._queue.renew([grant._claim for grant in grants]))
            self._table.answered(grants, answers, sent)

    def _leave(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            try:
                run(self._queue.leave(claim))
            except LockError as error:
                self._warn_of_stay(claim, error)

    def _give_back(self, grant: G) -> None:
        try:
            self._release(grant)
        except LockError as error:
            log.warn("could not release %r, whose `with` block was left; its lease ends: %s", grant.name, error)
