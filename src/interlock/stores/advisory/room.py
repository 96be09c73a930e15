"""The advisory locks of one process on one server: few sessions, many locks.

One session carries the locks that were free when they were asked for; it never waits. Who must wait does so on a
session of its own, and keeps the lock there. Of those of one process who wait for the same name one stands in the
line of the server, the others behind it in here. Leases are kept in here too: the server knows none, and frees what a
session has when that ends.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any
from weakref import WeakSet

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.queue import GONE, OCCUPIED, REFUSED, EnterResult, Granted, Outage, Renewed
from interlock.runtime import log
from interlock.runtime.process import WeakRegistry
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.places import Place, Places, is_shared
from interlock.stores.advisory.session import IO_TIMEOUT, Refusal, Session, Standing, refused
from interlock.stores.advisory.sessions import Sessions, is_idle, opener
from interlock.stores.advisory.watching import Watcher

LOOK_AGAIN = 1.0  # seconds; only a safety net
SOONEST = 0.05  # seconds after which a wait is broken off once more
UNHEARD = 2.5  # seconds after which a waiter asks whether the server has its session in line
TWICE = 0.5  # seconds until it asks again, if the server does not or could not be asked
UNTOLD = 3.0  # seconds for which the answer may be on its way when the server has given it the lock
AWAY = 0.25  # seconds until a server that is away is asked again
RECOVERY = 60.0  # seconds to wait for it, where the caller has set no limit
NO_SESSION = 0.1  # seconds after which a waiter asks again for a session to wait on


class Room:
    """The locks and sessions.

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
        self.places = Places()
        self.mutex = self.places.mutex
        self.sessions = Sessions(self.options, self._open, self.mutex)
        self.watcher = Watcher(self)
        self._ends = False
        self._ends_at = 0.0
        self.same_server: WeakSet[Any] = WeakSet()  # engines whose transactions can hold locks of ours
        self.executor = ThreadPoolExecutor(8, thread_name_prefix="interlock-advisory")

    # -- the steps --------------------------------------------------------------------------------------

    def enter(
        self, claim: Claim, wakeup: Any, wait: bool, again: bool, doubt: Callable[[str], object]
    ) -> EnterResult:
        """As `Queue.enter`."""
        with self.mutex:
            place = self.places.get(claim.id)
            if place is None:
                if again:
                    return GONE
                self._check_number()
                place = Place(claim, is_shared(claim.spec, self.options.mysql), wakeup, doubt)
                free = self.places.add(place)
                known = False
            else:
                known = True
                place.wakeup = wakeup or place.wakeup
                alive = place.until > monotonic()
                place.until = monotonic() + claim.spec.ttl if alive else 0.0
        if known:
            try:
                return self._stands(place, alive)
            except StoreError as error:  # the server may be away, or take no more sessions, for a while
                return EnterResult("busy", 0, AWAY, False, Outage(error, max(RECOVERY, claim.spec.ttl)))
        try:
            if free:
                self._try(place)
            if place.state == "using":
                self.watcher.mind(place.until)
                return EnterResult("using", place.fence)
            if not wait or wakeup is None:
                self.leave(claim)
                return OCCUPIED if wait else REFUSED
            place.state = "pending"
            self._ask(place)
        except BaseException:
            self.places.remove(place)
            self.watcher.poke()
            raise
        return self._stands(place, True)

    def _stands(self, place: Place, alive: bool) -> EnterResult:
        if not alive:
            self.end(place)
            return GONE
        session = place.session
        if place.state == "pending":
            if session is None:
                self._ask(place)
            else:
                self._see_it_waits(place, session)
        with self.mutex:
            if place not in self.places:
                return GONE
            if place.state == "using":
                return EnterResult("using", place.fence)
            pause = LOOK_AGAIN
            if place.session is not None:
                pause = min(pause, max(0.0, place.looks_at - monotonic()))
            elif self.places.head(place.key) is place:
                pause = NO_SESSION
            return EnterResult("pending", 0, pause)

    def leave(self, claim: Claim) -> bool:
        """As `Queue.leave`."""
        place = self.places.get(claim.id)
        if place is None:
            return False
        alive = place.until > monotonic()
        return self.end(place) and alive

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """As `Queue.renew`: each session is asked once whether it is still there."""
        now = monotonic()
        places = [self.places.get(claim.id) for claim in claims]
        answers: dict[Session, Renewed] = {}
        for place in places:
            session = None if place is None or place.state != "using" else place.session
            if session is not None and session not in answers:
                answers[session] = self._asked(session)
        return [self._renewed(place, answers, now) for place in places]

    def _asked(self, session: Session) -> Renewed:
        try:
            if session.ping() == session.pid:
                return True
            session.fail()  # a pooler has given our session to somebody else
        except (StoreError, Refusal) as error:
            self._give_up(session)
            if session.alive:
                return error if isinstance(error, StoreError) else refused(error)
        self.lost(session)
        return False

    def _renewed(self, place: Place | None, answers: dict[Session, Renewed], now: float) -> Renewed:
        if place is None or place.until <= now or place not in self.places:
            return False
        answer = True if place.session is None else answers.get(place.session, True)
        if answer is True:
            place.until = now + place.claim.spec.ttl
        return answer

    # -- trying and waiting -----------------------------------------------------------------------------

    def _try(self, place: Place) -> None:
        """Ask for the lock on the session that never waits."""
        session = self.ready()
        place.session = session
        try:
            fence = session.attempt(place.key, place.shared)
        except StoreError:
            self._give_up(session)
            raise
        with self.mutex:
            there = place in self.places and session.alive
            if fence is not None and there:
                place.fence, place.state = fence, "using"
                return
            place.session = None
        # It was evicted meanwhile, or another reader left while this one was counted.
        self._unlock(session, place.key, place.shared)

    def _ask(self, place: Place) -> None:
        """Let the first of those who wait here for a name stand in the line of the server."""
        self._see_it_watched()
        with self.mutex:
            if self.places.head(place.key) is not place or place.session is not None:
                return
            session = self.sessions.idle([each.session for each in self.places])
            if session is not None:
                place.session = session
            elif not self.sessions.may_open(self.places):
                return
            else:
                place.opens = True
        if session is None:
            try:
                session = self.sessions.open_apart()
            except BaseException:
                place.opens = False
                raise
            with self.mutex:
                self.sessions.add_apart(session)
                place.opens = False
                if place.session is not None or self.places.head(place.key) is not place:
                    return
                place.session = session
        place.looks_at, place.unheard = math.inf, None
        try:
            self._begin(session, place)
        except (StoreError, Refusal) as error:
            session.fail()
            self.lost(session)
            raise error if isinstance(error, StoreError) else refused(error) from error
        finally:
            place.looks_at = monotonic() + UNHEARD
        self.watcher.poke()

    def _begin(self, session: Session, place: Place) -> None:
        """Let a session wait for a claim, unless that was taken out since it was given the session.

        Then somebody else may have it: of two waits on one session the second takes the answer of the first.
        """
        with session.mutex:
            with self.mutex:
                if place.session is not session or place not in self.places:
                    return
                if not is_idle(session):
                    place.session = None
                    return
            session.waiter = place
            session.begin(place.key, place.shared)

    def _see_it_waits(self, place: Place, session: Session) -> None:
        """Find out whether the server has a session in line; if not, its connection is half-open.

        Either the session got the lock and could not say so, or the server never heard that it waits.
        """
        if monotonic() < place.looks_at:
            return
        place.looks_at = monotonic() + TWICE
        stands = self._standing(place, session)
        if stands is None:
            return
        place.looks_at = monotonic() + (TWICE if stands in ("holds", "gone") else UNHEARD)
        if stands in ("waits", "unknown"):
            place.unheard = None
        elif place.unheard is None:
            place.unheard = monotonic()
        elif stands == "gone" or monotonic() - place.unheard >= UNTOLD:
            self._end_wait(session)

    def _standing(self, place: Place, session: Session) -> Standing | None:
        """Ask the server how it sees a wait; None if it can't be asked now, as somebody else talks to it."""
        try:
            main = self.ready()
            if not main.mutex.acquire(blocking=False):
                return None
            try:
                # One that is silent is kept for its leases only.
                return None if main.overdue >= IO_TIMEOUT else main.standing(session, place.key)
            except StoreError:
                self._give_up(main)
                return None
            finally:
                main.mutex.release()
        except (StoreError, Refusal):
            return None  # it is only a look

    def _end_wait(self, session: Session) -> None:
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

    def arrived(self, session: Session) -> None:
        """Take the answer for which a session has waited, if it is there."""
        if not session.mutex.acquire(blocking=False):
            return
        try:
            if session.waits_for is None:
                return
            key, shared = session.waits_for
            place: Place | None = session.waiter
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

    def _unasked(self, session: Session, place: Place | None) -> None:
        with self.mutex:
            if place is not None and place.session is session:
                place.session = None
        self._give_back()

    # -- the end of a claim -----------------------------------------------------------------------------

    def end(self, place: Place) -> bool:
        """Take a claim out, and give back what it has; False if somebody else does so.

        Raises:
            StoreError: the server could not be asked.
        """
        if not self.places.remove(place):
            return False
        session = place.session
        try:
            if session is None or place.state == "trying" or not session.alive:
                pass  # who tries finds that it has gone
            elif place.state == "pending":
                self._break_off(session, place)
            elif place.until <= monotonic() and session.overdue >= IO_TIMEOUT:
                self._give_up(session)  # else `reconcile` gives it back when it answers
            else:
                self._unlock(session, place.key, place.shared)
                self._give_back()
        except BaseException:
            if session is not None:
                self._give_up(session)
            self.watcher.poke()
            raise
        finally:
            self._nudge(place.key)
        return True

    def _give_up(self, session: Session) -> None:
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

    def _is_leased(self, session: Session) -> bool:
        with self.mutex:
            return any(
                each.session is session and each.state == "using" and each.until > monotonic() for each in self.places
            )

    def reconcile(self, session: Session) -> None:
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
                return  # who waits for an answer of it, or renews, takes the late one
            if session.unsettled:
                session.settle()
            for key, shared in list(session.counts):
                self._unlock(session, key, shared)
        except StoreError:
            self._give_up(session)
            raise
        finally:
            session.mutex.release()

    def _unlock(self, session: Session, key: int, shared: bool) -> None:
        with session.mutex:
            with self.mutex:
                left = sum(each.session is session and each.state != "pending" for each in self.places.line(key))
            session.give_back(key, shared, left)

    def _break_off(self, session: Session, place: Place) -> None:
        """End the wait of a session, which may be granted at this very moment."""
        pause = SOONEST
        deadline = monotonic() + IO_TIMEOUT
        try:
            while session.alive:
                with session.mutex:
                    if session.waits_for is None or session.waiter is not place:
                        break  # it was broken off, and may wait for somebody else by now
                    if session.collect() is not None:
                        self._unlock(session, place.key, place.shared)
                        break
                    self.ready().cancel(session)
                    # In vain where it came before the server had begun with what it breaks off.
                    if session.collect(pause) is not None:
                        self._unlock(session, place.key, place.shared)
                        break
                    pause = min(2 * pause, LOOK_AGAIN)
                if monotonic() > deadline:
                    self.lost(session, silent=True)  # its connection is half-open
        except Refusal:
            pass  # broken off
        except StoreError:
            self.lost(session)
            return
        except BaseException:  # interrupted: what it waits for may be granted, and nobody would take the answer
            self.lost(session)
            raise
        self._give_back()

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

    def lost(self, session: Session, *, silent: bool = False) -> None:
        """Note that a session has ended: who had a lock by it has lost it, who waited on it asks again.

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
            if not each.fail():
                self.sessions.ended.append(each)
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

    def ready(self) -> Session:
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
        if not self.watcher.poke():
            raise StoreError("no thread can be started that hears of the end of a session and of a wait")

    def _check_number(self) -> None:
        if sum(len(room.places) for room in all_rooms) >= self.options.max_locks:
            raise StoreError(
                f"this process uses {self.options.max_locks} advisory locks already, and the lock table of the "
                f"server is for all: when it is full, nobody can even connect. Release some, or allow more by "
                f"?max_locks="
            )

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


all_rooms: WeakRegistry[Room] = WeakRegistry()
