"""What becomes of claims when their session answers, is silent, or ends.

A session may be half-open: something in between has forgotten it without a word.  Then it is given up in here, and
ended on the server by another one.
"""

from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any
from weakref import WeakSet

from interlock.core.errors import StoreError
from interlock.core.queue import Granted
from interlock.runtime import log
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.places import AdvisoryClaim, AdvisoryClaims
from interlock.stores.advisory.session import IO_TIMEOUT, AdvisorySession, Refusal
from interlock.stores.advisory.sessions import AdvisorySessions, opener
from interlock.stores.advisory.watching import Watcher


class BaseRoom:
    """The claims of one process on one server, and the sessions that carry them.

    Args:
        options: what the URL says.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.users = 0
        self._open = opener(options)
        self.begin_afresh()

    def begin_afresh(self) -> None:
        """Forget everything: nothing is held, no session is open."""
        self.places = AdvisoryClaims()
        self.mutex = self.places.mutex
        self.sessions = AdvisorySessions(self.options, self._open, self.mutex)
        self.watcher = Watcher(self)
        self.inside: set[int] = set()  # threads that are in the middle of a step
        self._ends = False
        self._ends_at = 0.0
        self.same_server: WeakSet[Any] = WeakSet()  # engines whose transactions can hold locks of ours
        self.executor = ThreadPoolExecutor(8, thread_name_prefix="interlock-advisory")

    # -- waits ----------------------------------------------------------------------------------------

    def end(self, place: AdvisoryClaim) -> bool:
        """Take a claim out, and give back what it has; False if somebody else does so."""
        raise NotImplementedError

    def _end_wait(self, session: AdvisorySession) -> None:
        """End a session on which somebody waits, unless its answer has come just now, or is just being read."""
        if session.mutex.acquire(blocking=False):
            try:
                self.arrived(session)
                if session.waits_for is not None:
                    self.lost(session, silent=True)
            except StoreError:
                self.lost(session, silent=True)
            finally:
                session.mutex.release()

    def arrived(self, session: AdvisorySession) -> None:
        """Take the answer for which a session has waited, if it is there."""
        if not session.mutex.acquire(blocking=False):
            return
        try:
            if session.waits_for is None:
                return
            key, shared = session.waits_for
            place: AdvisoryClaim | None = session.waiter
            try:
                fence = session.collect()
            except Refusal:  # of a wait that somebody else broke off: it is asked for again
                self._unasked(session, place)
                return
            except StoreError:
                self.lost(session)
                return
            if fence is None:
                return
            with self.mutex:
                if place is None or place.session is not session or place not in self.places:
                    place = None
                else:
                    place.fence, place.state = fence, "using"
                    place.until = monotonic() + place.claim.spec.ttl
                    place.wakeup.tell(Granted(place.claim.id, fence))
            if place is None:
                self._unlock(session, key, shared)
                self._give_back()
        finally:
            session.mutex.release()
        self._nudge(key)

    def _unasked(self, session: AdvisorySession, place: AdvisoryClaim | None) -> None:
        with self.mutex:
            if place is not None and place.session is session:
                place.session = None
        self._give_back()

    # -- the end of a session ---------------------------------------------------------------------------

    def _give_up(self, session: AdvisorySession) -> None:
        """End a session that has not answered in time, unless a lease that has not ended depends on it.

        A connection may be half-open; then no answer ever comes, and the server keeps what the session had.  Those on
        which somebody has waited since before end too: each would be found only after the server has given it the
        lock, one by one.
        """
        overdue = session.overdue
        silent_since = monotonic() - overdue
        with self.mutex:
            waiting = [
                each
                for each in self.sessions.apart
                if overdue >= IO_TIMEOUT and each.waits_for is not None and each.waits_since < silent_since
            ]
        for each in waiting:  # at first: what this session gives back may be granted to one of them
            self._end_wait(each)
        if not session.alive or (session.overdue >= IO_TIMEOUT and not self._is_leased(session)):
            self.lost(session)

    def _is_leased(self, session: AdvisorySession) -> bool:
        with self.mutex:
            return any(
                each.session is session and each.state == "using" and each.until > monotonic() for each in self.places
            )

    def reconcile(self, session: AdvisorySession) -> None:
        """Give back what a session has and nobody in here any more: an interrupt may come at any line.

        Raises:
            StoreError: the server can't be asked.
        """
        if not session.mutex.acquire(blocking=False):
            return
        try:
            if session.left:  # it has no lock, and the server ends the wait with it
                self.lost(session)
                return
            if session.overdue >= IO_TIMEOUT:
                self._give_up(session)
                return  # a call that waits for its answer, or renews, takes the late one
            if session.unsettled:
                session.settle()
            for key, shared in list(session.counts):
                self._unlock(session, key, shared)
        except StoreError:
            self._give_up(session)
            raise
        finally:
            session.mutex.release()

    def _unlock(self, session: AdvisorySession, key: int, shared: bool) -> None:
        with session.mutex:
            with self.mutex:
                left = sum(each.session is session and each.state != "pending" for each in self.places.line(key))
            session.give_back(key, shared, left)

    def _give_back(self) -> None:
        place = self.places.head_without_session()
        if place is not None:
            self._nudge(place.key)

    def _nudge(self, key: int) -> None:
        """Let the next who waits for a name in here look again."""
        with self.mutex:
            place = self.places.head(key)
            if place is not None and place.session is None:
                place.wakeup.wake()

    def lost(self, session: AdvisorySession, *, silent: bool = False) -> None:
        """Note that a session has ended: the holders of its locks have lost them, a waiter on it asks again.

        Those that nobody uses end too: they lead to the same server, and nobody would hear that they have ended.

        Args:
            session: the session.
            silent: True if it gave no answer, so that the server may not know of its end.
        """
        silent = silent or session.overdue >= IO_TIMEOUT
        doubts = []
        with self.mutex:
            session.alive = False
            self.sessions.give_up(session, silent)
            unused = self.sessions.take_idle([each.session for each in self.places])
            for place in self.places:
                if place.session is session and place.state == "using":
                    self.places.remove(place)
                    doubts.append(place)
                elif place.session is session and place.state == "pending":
                    place.session = None
                    place.wakeup.wake()
        for each in (session, *unused):
            self.sessions.close(each)
        for place in doubts:
            place.doubt(place.claim.id)
            self._nudge(place.key)

    def end_on_server(self) -> None:
        """End on the server, too, what was given up here: it would keep its locks until its own system finds out."""
        if self.sessions.given_up and not self._ends and monotonic() >= self._ends_at:
            self._ends = True
            try:
                self.executor.submit(self._end_given_up)  # the watcher has more to do than to wait for answers
            except RuntimeError:  # no thread, or closed
                self._ends = False

    def _end_given_up(self) -> None:
        self._ends_at = monotonic() + IO_TIMEOUT
        try:
            main = self.ready()
            with main.mutex:
                while main.overdue < IO_TIMEOUT and (one := self.sessions.next_given_up()):
                    try:
                        main.terminate(*one)
                    except StoreError:
                        self.sessions.given_up.appendleft(one)
                        self._give_up(main)
                        return
                    except Refusal as error:
                        log.warn("a session that gives no answer could not be ended on the server: %s", error)
        except StoreError:
            pass  # the server is away; later
        finally:
            self._ends = False

    # -- sessions ---------------------------------------------------------------------------------------

    def ready(self) -> AdvisorySession:
        """Return the session that never waits.

        Raises:
            StoreError: it can't be opened.
        """
        session = self.sessions.main
        if session is None or not session.alive:
            session = self.sessions.open_main()
            self._see_it_watched()
        return session

    def _see_it_watched(self) -> None:
        if not self.watcher.wake():
            raise StoreError("no thread can be started that hears of the end of a session and of a wait")

    def close(self) -> None:
        """End all sessions."""
        self.watcher.stop()
        self.sessions.end()
        self.places.clear()
        self.executor.shutdown(wait=False)

    def abandon(self) -> None:
        """In a forked child: own nothing, and leave the sessions to the parent."""
        for session in self.sessions.open():
            session.abandon()
        self.watcher.abandon(forked=True)
        self.begin_afresh()
