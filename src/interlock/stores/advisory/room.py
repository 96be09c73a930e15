"""The advisory locks of one process on one server: few sessions, many locks.

One session carries the locks that were free when they were asked for; it never waits. A claim that must wait does so
on a session of its own, and keeps the lock there. Of the claims of one process that wait for the same name one stands
in the line of the server, the others behind it in here. Leases are kept in here too: the server knows none, and frees
what a session has when that ends.
"""

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.queue import GONE, OCCUPIED, REFUSED, EnterResult, Outage, Renewed
from interlock.runtime.process import WeakRegistry
from interlock.stores.advisory.base import BaseRoom
from interlock.stores.advisory.places import AdvisoryClaim, is_shared
from interlock.stores.advisory.session import IO_TIMEOUT, AdvisorySession, Refusal, Standing, refused
from interlock.stores.advisory.sessions import is_idle

LOOK_AGAIN = 1.0  # seconds; only a safety net
SOONEST = 0.05  # seconds after which a wait is broken off once more
UNHEARD = 2.5  # seconds after which a waiter asks whether the server has its session in line
TWICE = 0.5  # seconds until it asks again, if the server does not or could not be asked
UNTOLD = 3.0  # seconds for which the answer may be on its way when the server has given it the lock
AWAY = 0.25  # seconds until a server that is away is asked again
RECOVERY = 60.0  # seconds to wait for it, where the caller has set no limit
NO_SESSION = 0.1  # seconds after which a waiter asks again for a session to wait on


class Room(BaseRoom):
    """The locks: how they are asked for, waited for and given back."""

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
                place = AdvisoryClaim(claim, is_shared(claim.spec, self.options.mysql), wakeup, doubt)
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
            self.watcher.wake()
            raise
        return self._stands(place, True)

    def _stands(self, place: AdvisoryClaim, alive: bool) -> EnterResult:
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
        answers: dict[AdvisorySession, Renewed] = {}
        for place in places:
            session = None if place is None or place.state != "using" else place.session
            if session is not None and session not in answers:
                answers[session] = self._asked(session)
        return [self._renewed(place, answers, now) for place in places]

    def _asked(self, session: AdvisorySession) -> Renewed:
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

    def _renewed(self, place: AdvisoryClaim | None, answers: dict[AdvisorySession, Renewed], now: float) -> Renewed:
        if place is None or place.until <= now or place not in self.places:
            return False
        answer = True if place.session is None else answers.get(place.session, True)
        if answer is True:
            place.until = now + place.claim.spec.ttl
        return answer

    # -- trying and waiting -----------------------------------------------------------------------------

    def _try(self, place: AdvisoryClaim) -> None:
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

    def _ask(self, place: AdvisoryClaim) -> None:
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
        self.watcher.wake()

    def _begin(self, session: AdvisorySession, place: AdvisoryClaim) -> None:
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

    def _see_it_waits(self, place: AdvisoryClaim, session: AdvisorySession) -> None:
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

    def _standing(self, place: AdvisoryClaim, session: AdvisorySession) -> Standing | None:
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

    # -- the end of a claim -----------------------------------------------------------------------------

    def end(self, place: AdvisoryClaim) -> bool:
        """Take a claim out, and give back what it has; False if somebody else does so.

        Raises:
            StoreError: the server could not be asked.
        """
        if not self.places.remove(place):
            return False
        session = place.session
        try:
            if session is None or place.state == "trying" or not session.alive:
                pass  # the claim that tries finds that it has gone
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
            self.watcher.wake()
            raise
        finally:
            self._nudge(place.key)
        return True

    def _break_off(self, session: AdvisorySession, place: AdvisoryClaim) -> None:
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

    def _check_number(self) -> None:
        if sum(len(room.places) for room in all_rooms) >= self.options.max_locks:
            raise StoreError(
                f"this process uses {self.options.max_locks} advisory locks already, and the lock table of the "
                f"server is for all: when it is full, nobody can even connect. Release some, or allow more by "
                f"?max_locks="
            )


all_rooms: WeakRegistry[Room] = WeakRegistry()
