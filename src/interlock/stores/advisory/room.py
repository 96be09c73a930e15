"""The advisory locks of one process on one server: few sessions, many locks.

One session carries the locks that were free when they were asked for; it never waits. Who must wait does so on a
session of its own, and keeps the lock there. Of those of one process who wait for the same name one stands in the
line of the server, the others behind it in here. Leases are kept in here too: the server knows none, and frees what a
session has when that ends.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any
from weakref import WeakSet

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.queue import GONE, OCCUPIED, REFUSED, EnterResult, Granted, Renewed
from interlock.runtime.process import WeakRegistry, in_forked_child
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.places import Place, is_shared
from interlock.stores.advisory.session import IO_TIMEOUT, Refusal, Session, refused
from interlock.stores.advisory.watching import Watcher

LOOK_AGAIN = 1.0  # seconds; only a safety net
SOONEST = 0.05  # seconds after which a wait is broken off once more
UNTOLD = 5.0  # seconds after which a waiter asks whether its session got the lock and could not say so
NO_SESSION = 0.1  # seconds after which a waiter asks again for a session to wait on


def opened(options: Options) -> Session:
    """Open a session.

    Raises:
        StoreError: it can't be.
    """
    try:
        if options.mysql:
            from interlock.stores.advisory.mysql import open_mysql  # one needs PyMySQL, the other psycopg

            return open_mysql(options)
        from interlock.stores.advisory.opening import open_session

        return open_session(options)
    except ImportError as error:
        raise StoreError(f"the client library of the database is missing, install it: {error}") from error


class Room:
    """The locks and sessions.

    Args:
        options: what the URL says.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.users = 0
        self.begin_afresh()

    def begin_afresh(self) -> None:
        """Forget everything: nothing is held, no session is open."""
        self.mutex = threading.RLock()
        self.places: dict[str, Place] = {}
        self.lines: dict[int, list[Place]] = {}
        self.sessions: list[Session] = []
        self._opening = threading.Lock()
        self._failed: tuple[float, StoreError | None] = (0.0, None)  # when, and why, no session could be opened
        self._apart: list[Session] = []  # those on which somebody waits or has waited
        self._opens: set[str] = set()  # the claims for which a session is being opened
        self.main: Session | None = None
        self.watcher = Watcher(self)
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
                line = self._line(place.key)
                free = all(each.shared and place.shared and each.state != "pending" for each in line)
                self.places[claim.id] = place
                self.lines[place.key] = [*line, place]
                known = False
            else:
                known = True
                place.wakeup = wakeup or place.wakeup
                alive = place.until > monotonic()
                place.until = monotonic() + claim.spec.ttl if alive else 0.0
        if known:
            return self._stands(place, alive)
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
            self._forget(place)
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
                self._find_untold(place, session)
        with self.mutex:
            if self.places.get(place.claim.id) is not place:
                return GONE
            if place.state == "using":
                return EnterResult("using", place.fence)
            head = self._head(place.key) is place
            return EnterResult("pending", 0, NO_SESSION if head and place.session is None else LOOK_AGAIN)

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
        if place is None or place.until <= now or self.places.get(place.claim.id) is not place:
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
            there = self.places.get(place.claim.id) is place
            if fence is not None and there:
                place.fence, place.state = fence, "using"
                return
            place.session = None
        # It was evicted meanwhile, or another reader left while this one was counted.
        self._unlock(session, place.key, place.shared)

    def _ask(self, place: Place) -> None:
        """Let the first of those who wait here for a name stand in the line of the server."""
        with self.mutex:
            if self._head(place.key) is not place or place.session is not None:
                return
            session = self._free()
            opening = [id for id in self._opens if id in self.places]
            if session is not None:
                place.session = session
            elif len(self._apart) + len(opening) >= self.options.max_waiting:
                return
            else:
                self._opens.add(place.claim.id)
        if session is None:
            try:
                session = opened(self.options)
            except BaseException:
                self._opens.discard(place.claim.id)
                raise
            with self.mutex:
                self._apart.append(session)
                self.sessions.append(session)
                self._opens.discard(place.claim.id)
                if place.session is not None or self._head(place.key) is not place:
                    return
                place.session = session
        place.looks_at, place.untold = monotonic() + UNTOLD, False
        try:
            self._begin(session, place)
        except (StoreError, Refusal) as error:
            session.fail()
            self.lost(session)
            raise error if isinstance(error, StoreError) else refused(error) from error
        self.watcher.poke()

    def _begin(self, session: Session, place: Place) -> None:
        """Let a session wait for a claim, unless that was taken out since it was given the session.

        Then somebody else may have it: of two waits on one session the second takes the answer of the first.
        """
        with session.mutex:
            with self.mutex:
                if place.session is not session or self.places.get(place.claim.id) is not place:
                    return
                if not _is_idle(session):
                    place.session = None
                    return
            session.waiter = place
            session.begin(place.key, place.shared)

    def _find_untold(self, place: Place, session: Session) -> None:
        """Find out whether a session got what it waits for and does not say so: its connection is half-open."""
        now = monotonic()
        if now < place.looks_at:
            return
        try:
            rows = self.ready().look(place.key)
        except (StoreError, Refusal):
            return  # it is only a look
        has = any(row[0] == str(session.pid) and row[1] == "t" for row in rows)
        if has and place.untold and session.waits_for is not None:
            self.lost(session)
        place.untold = has
        place.looks_at = now + (LOOK_AGAIN if has else UNTOLD)

    def _free(self) -> Session | None:
        """Return a session to wait on that nobody uses; looked for, not kept, as an interrupt could lose it."""
        used = [place.session for place in self.places.values()]
        return next((each for each in self._apart if _is_idle(each) and each not in used), None)

    def _head(self, key: int) -> Place | None:
        """Return who is the next in here to stand in the line of the server."""
        return next((each for each in self._line(key) if each.state == "pending"), None)

    def _line(self, key: int) -> list[Place]:
        """Return who has a name in here or waits for it; what an interrupt left behind in the line is nobody's."""
        return [each for each in self.lines.get(key, ()) if self.places.get(each.claim.id) is each]

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
                if place is None or place.session is not session or self.places.get(place.claim.id) is not place:
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
        if not self._forget(place):
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

        A connection may be half-open; then no answer ever comes, and the server keeps what the session had.
        """
        with self.mutex:
            leased = any(
                each.session is session and each.state == "using" and each.until > monotonic()
                for each in self.places.values()
            )
        if not session.alive or (session.overdue >= IO_TIMEOUT and not leased):
            self.lost(session)

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
                left = sum(each.session is session and each.state != "pending" for each in self._line(key))
            session.give_back(key, shared, left)

    def _forget(self, place: Place) -> bool:
        with self.mutex:
            if self.places.get(place.claim.id) is not place:
                return False
            del self.places[place.claim.id]
            line = self._line(place.key)
            if line:
                self.lines[place.key] = line
            else:
                self.lines.pop(place.key, None)
            return True

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
                    self.lost(session)  # its connection is half-open
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
        for place in [self._head(key) for key in list(self.lines)]:
            if place is not None and place.session is None:
                self._nudge(place.key)
                break

    def _nudge(self, key: int) -> None:
        """Let the next who waits for a name in here look again."""
        with self.mutex:
            place = self._head(key)
            if place is not None and place.session is None:
                place.wakeup.wake()

    def lost(self, session: Session) -> None:
        """Note that a session has ended: who had a lock by it has lost it, who waited on it asks again."""
        doubts = []
        with self.mutex:
            session.alive = False
            if session in self.sessions:
                self.sessions.remove(session)
            if session in self._apart:
                self._apart.remove(session)
            if session is self.main:
                self.main = None
            for place in list(self.places.values()):
                if place.session is session and place.state == "using":
                    self._forget(place)
                    doubts.append(place)
                elif place.session is session and place.state == "pending":
                    place.session = None
                    place.wakeup.wake()
        session.fail()
        for place in doubts:
            place.doubt(place.claim.id)
            self._nudge(place.key)

    # -- sessions ---------------------------------------------------------------------------------------

    def ready(self) -> Session:
        """Return the session that never waits.

        Raises:
            StoreError: it can't be opened.
        """
        session, began = self.main, monotonic()
        if session is None or not session.alive:
            with self._opening:
                session = self.main
                if session is None or not session.alive:
                    failed_at, why = self._failed
                    if failed_at > began:  # while this one waited: it does not wait as long again
                        raise StoreError(str(why)) from why
                    try:
                        session = opened(self.options)
                    except StoreError as error:
                        self._failed = monotonic(), error
                        raise
                    with self.mutex:
                        self.main = session
                        self.sessions.append(session)
                    self.watcher.poke()
        return session

    def _check_number(self) -> None:
        if sum(len(room.places) for room in _rooms) >= self.options.max_locks:
            raise StoreError(
                f"this process uses {self.options.max_locks} advisory locks already, and the lock table of the "
                f"server is for all: when it is full, nobody can even connect. Release some, or allow more by "
                f"?max_locks="
            )

    def close(self) -> None:
        """End all sessions."""
        self.watcher.stop()
        for session in list(self.sessions):
            session.fail()
        with self.mutex:
            self.sessions.clear()
            self.places.clear()
            self.lines.clear()
        self.executor.shutdown(wait=False)

    def abandon(self) -> None:
        """In a forked child: own nothing, and leave the sessions to the parent."""
        _inherited.extend(self.sessions)
        for session in self.sessions:
            session.abandon()
        self.watcher.abandon()
        self.begin_afresh()


def _is_idle(session: Session) -> bool:
    return session.alive and session.waits_for is None and not session.counts and not session.unsettled


_rooms: WeakRegistry[Room] = WeakRegistry()
_by_options: dict[Options, Room] = {}
_inherited: list[Session] = []  # never collected, which would end them
_mutex = threading.Lock()


def room_of(options: Options) -> Room:
    """Return the locks of this process on a server; `let_go` gives them back."""
    with _mutex:
        room = _by_options.get(options)
        if room is None:
            room = _by_options[options] = Room(options)
            _rooms.add(room)
        room.users += 1
        return room


def let_go(room: Room) -> None:
    """Give a room back; the last one closes it."""
    with _mutex:
        room.users -= 1
        if room.users or _by_options.get(room.options) is not room:
            return
        del _by_options[room.options]
    room.close()


def _after_fork() -> None:
    global _mutex
    _mutex = threading.Lock()
    for room in _rooms:
        room.abandon()


in_forked_child(_after_fork)
