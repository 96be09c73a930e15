# Generated from _async/queue.py by tools/unasync.py; change that one.
"""The queue on sessions, as tasks use it: a holder has a session, a waiter one that stands in the server's line."""

from collections.abc import Callable, Sequence
from typing import Any

from interlock.core.claims import SEPARATOR, Check, Claim, ClaimView, namespace_of
from interlock.core.errors import StoreError, UnknownOutcome, Unsupported
from interlock.core.line import GONE, KEPT
from interlock.core.queue import GONE as IS_GONE
from interlock.core.queue import OCCUPIED, REFUSED, EnterResult, Granted, Held, Outage, Renewed
from interlock.runtime import _threads as rt
from interlock.runtime.process import checked_pid
from interlock.stores.advisory.room import LACKS, AdvisoryPlace, AdvisoryRoom, is_shared, now, number_of
from interlock.stores.advisory.session import IO_TIMEOUT, Refusal, refused
from interlock.stores.advisory.views import checks, ending, foreign_view, view_of

LOOK_AGAIN = 1.0  # seconds; only a safety net
NO_SESSION = 0.1  # seconds after which a waiter asks again for a session to wait on
AWAY = 0.25  # seconds until a server that is away is asked again
RECOVERY = 60.0  # seconds to wait for it, where the caller has set no limit
SOONEST = 0.05  # seconds after which a wait is broken off once more
MOMENT = 0.001  # seconds


class AdvisoryQueue:
    """A queue on the sessions of a room.

    Args:
        room: the claims and sessions of this process.
        make: makes a session of this colour.
    """

    node_of = None

    def __init__(self, room: AdvisoryRoom, make: Callable[..., Any]) -> None:
        self._room = room
        self._make = make
        self.doubt: Callable[[str], object] = lambda id: None

    def set_doubt(self, doubt: Callable[[str], object]) -> None:
        """Let a function be called with each claim that is not had any more."""
        self.doubt = doubt

    def rest(self) -> None:
        """End the sessions that nobody uses."""
        self._room.rest()

    def subscribe(self) -> Any:
        return rt.Waiter()

    # -- entering ---------------------------------------------------------------------------------------

    def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> EnterResult:
        room = self._room
        place = room.places.get(claim.id)
        if place is not None:
            return self._stands(place, waiter)
        if again:
            return IS_GONE
        place = AdvisoryPlace(claim, is_shared(claim.spec, room.options.mysql), waiter, self)
        free = room.add(place)
        try:
            if waiter is not None and wait:
                place.state = "pending"
                return self._stands(place, waiter)
            if free and self._attempt(place, wait):
                return EnterResult("using", place.fence)
        except BaseException:
            if room.take_out(claim.id) is place or place.state == "trying":
                rt.finish(self._end, place)
            raise
        room.take_out(claim.id)  # while it tries nobody else gives back what it has
        self._end(place)
        return OCCUPIED if wait else REFUSED

    def _attempt(self, place: AdvisoryPlace, wait: bool) -> bool:
        """Ask for the lock; True if the claim has it."""
        room = self._room
        place.session = session = self._session()
        if session is None:
            if wait:
                return False
            raise StoreError(
                f"this process has {room.options.max_sessions} sessions with the database already, one for each lock "
                f"that it holds or waits for: release some, or allow more by ?max_sessions="
            )
        try:
            fence = session.attempt(place.key, place.shared)
        except Refusal as error:
            raise refused(error) from error
        with room.mutex:
            if fence is None or not room.is_in(place):  # it was evicted meanwhile
                return False
            place.take(fence)
        room.mind(place)
        return True

    def _session(self, waits: bool = False, beyond: bool = False) -> Any:
        """Return a session that nobody uses, opened if need be; None if there may be no more."""
        session = self._room.take(self._make, waits, beyond)
        if session is not None and session.fd < 0:
            try:
                session.open()
            except BaseException:
                self._room.drop(session)
                raise
        return session

    def _stands(self, place: AdvisoryPlace, waiter: Any) -> EnterResult:
        """Say where a claim stands, and see to it that the first who waits in here does so in the server."""
        room, claim = self._room, place.claim
        if place.until <= now():
            if room.take_out(claim.id) is place:
                self._end(place)
            return IS_GONE
        place.until = now() + claim.spec.ttl
        place.waiter = waiter or place.waiter
        room.mind(place)
        pause = LOOK_AGAIN
        with room.mutex:
            stands = place.stands or place.state == "using" or room.head(place.key) is not place
            place.stands = place.stands or not stands
        if not stands:
            try:
                session = self._session(waits=True)
            except BaseException as error:
                place.stands = False
                if not isinstance(error, StoreError):
                    raise
                outage = Outage(error, max(RECOVERY, claim.spec.ttl))
                return EnterResult("busy", 0, AWAY, False, outage)  # it may be away, or take no more sessions
            with room.mutex:
                place.stands = session is not None and room.is_in(place)
                place.session = session if place.stands else None
            if session is None:
                pause = NO_SESSION
            elif not place.stands:
                room.keep(session)
            elif rt.spawn("interlock-advisory-wait", self._wait, place, session) is None:
                place.stands = False
                raise StoreError("no thread can be started to wait for a lock with")
        if not room.is_in(place):
            return IS_GONE
        return EnterResult("using", place.fence) if place.state == "using" else EnterResult("pending", 0, pause)

    def _wait(self, place: AdvisoryPlace, session: Any) -> None:
        """Wait in the server until the lock is granted, or the wait is broken off; in a task of its own."""
        room, fence, left = self._room, None, True
        try:
            fence = session.wait(place.key, place.shared)
        except StoreError:
            room.drop(session)
        except BaseException:
            session.silent = True  # the server goes on with what nobody waits for
            room.drop(session)
            raise
        finally:
            with room.mutex:
                left = not room.is_in(place)  # then who took it out does the rest
                if not left:
                    if fence is not None and session.alive:
                        place.take(fence)
                    else:
                        place.session = None
                place.stands = False
                over = place.over
            if over is not None:
                over.tell(True)
        if left:
            return
        if place.state == "using":
            room.mind(place)
            place.waiter.tell(Granted(place.claim.id, place.fence))
            room.nudge(place.key)
        else:
            try:
                self._put_back(place, session)
            except StoreError:
                pass  # it has ended
            place.waiter.tell()

    # -- leaving ----------------------------------------------------------------------------------------

    def leave(self, claim: Claim, done: float = 0.0) -> bool:
        if done:
            raise Unsupported(LACKS.format("once"))
        place = self._room.take_out(claim.id)
        if place is None or place.state == "trying":
            return False
        alive = place.until > now()
        return self._end(place) and alive

    def _end(self, place: AdvisoryPlace) -> bool:
        """Give back what a claim has that was taken out; False if its session has ended.

        Raises:
            StoreError: the server does not answer.
        """
        try:
            session = place.session
            if place.stands:
                return self._break_off(place)
            return session is None or self._put_back(place, session)
        finally:
            self._room.nudge(place.key)

    def _break_off(self, place: AdvisoryPlace) -> bool:
        """End a wait, which may be granted at this very moment."""
        room, over, pause, deadline = self._room, rt.Waiter(), SOONEST, now() + IO_TIMEOUT
        place.over = over
        try:
            while place.stands and place.session is not None and now() < deadline:
                other = self._session(beyond=True)
                try:
                    other.cancel(place.session)
                finally:
                    room.keep(other)
                # In vain where it came before the server had begun with what it breaks off.
                over.wait(pause)
                pause *= 2
        except Refusal:
            pass
        finally:
            session = place.session
            if place.stands and session is not None:
                session.silent = True
                room.drop(session)
        return session is None or self._put_back(place, session)

    def _put_back(self, place: AdvisoryPlace, session: Any) -> bool:
        """Give back what a session has, and keep it for the next; False if it has ended.

        Raises:
            StoreError: it does not answer.
        """
        room, deadline = self._room, now() + IO_TIMEOUT
        try:
            if session.silent:
                raise UnknownOutcome("the session with the database gives no answer, and was ended")
            while session.busy and now() < deadline:
                rt.sleep(MOMENT)  # somebody renews its lease just now
            try:
                session.give_back(place.key, place.shared)
            except Refusal:  # of what was broken off too late
                session.give_back(place.key, place.shared)
        except Refusal as error:
            raise refused(error) from error
        except StoreError:
            if session.silent:
                raise
            return False
        finally:
            if session.busy or not session.alive or session.silent:
                room.drop(session)
            else:
                room.keep(session)
        return True

    # -- renewing ---------------------------------------------------------------------------------------

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        answers: dict[str, Renewed] = {}
        silent: StoreError | None = None
        # One session after another: where one is silent the others are asked before it the next time.
        for claim in sorted(claims, key=self._is_silent):
            if silent is None:
                answers[claim.id] = found = self._renew(claim)
                silent = found if isinstance(found, StoreError) and self._is_silent(claim) else None
            else:
                answers[claim.id] = silent
        return [answers[claim.id] for claim in claims]

    def _is_silent(self, claim: Claim) -> bool:
        place = self._room.places.get(claim.id)
        return place is not None and place.session is not None and bool(place.session.silent)

    def _renew(self, claim: Claim) -> Renewed:
        checked_pid()
        room, started = self._room, now()
        with room.mutex:
            place = room.places.get(claim.id)
            session = place.session if place is not None and place.state == "using" else None
        if place is None or place.until <= started:
            return GONE
        if session is not None and not session.busy:
            try:
                ours = session.ping()
            except Refusal as error:
                return refused(error)
            except StoreError as error:
                if session.alive:
                    return error
                ours = False
            if not ours:
                session.silent = False  # a pooler has given it to somebody else
                if room.take_out(claim.id) is place:
                    room.drop(session)
                    room.nudge(place.key)
        with room.mutex:
            if not room.is_in(place):
                return GONE
            place.until = started + claim.spec.ttl
        return KEPT

    def adopt(self, key: str, id: str, claim: Claim) -> Held | None:
        raise Unsupported(LACKS.format("detach"))

    # -- from outside -----------------------------------------------------------------------------------

    def look(self, key: str) -> list[ClaimView]:
        room = self._room
        whole = key.endswith(SEPARATOR)
        with room.mutex:
            found = [each for each in room.places.values() if each.state != "trying"]
            own = [each for each in found if (each.claim.spec.key.startswith(key) if whole else _is(each, key))]
        if whole:
            return [view_of(each) for each in sorted(own, key=_order)]
        rows = self._ask("look", number_of(key))
        ours = {each.session.pid: each for each in own if each.session is not None}
        views = [
            view_of(ours.pop(int(str(row[0])))) if int(str(row[0])) in ours else foreign_view(key, row)
            for row in rows
        ]
        known = {view.id for view in views}
        views += [
            view_of(each) for each in own if each.claim.id not in known and not each.stands and room.is_in(each)
        ]
        return sorted(views, key=lambda view: view.state != "using")

    def _ask(self, what: str, *args: Any) -> Any:
        """Ask the server by a session that nobody uses."""
        session = self._session(beyond=True)
        try:
            return getattr(session, what)(*args)
        except Refusal as error:
            raise refused(error) from error
        finally:
            self._room.keep(session)

    def evict(self, key: str, id: str | None) -> int:
        room, count = self._room, 0
        with room.mutex:
            found = [each for each in room.places.values() if _is(each, key) and id in (None, each.claim.id)]
            found = [each for each in found if each.state != "trying"]
        for place in found:
            if room.take_out(place.claim.id) is place:
                count += self._end(place)
                if place.state == "using":
                    place.owner.doubt(place.claim.id)
                elif place.waiter is not None:
                    place.waiter.tell()
        if not count:
            for view in self.look(key):
                if id in (None, view.id):
                    raise StoreError(ending(view, room.options.mysql))
        return count

    def namespaces(self) -> list[str]:
        """List the namespaces in which this process holds a lock or waits: the server has only hashes."""
        return sorted({namespace_of(each.claim.spec.key) for each in list(self._room.places.values())})

    def doctor(self) -> list[Check]:
        session = self._session(beyond=True)
        try:
            version, space, seconds = session.about()
        except Refusal as error:
            raise refused(error) from error
        finally:
            self._room.keep(session)
        direct = session.pid == session.reported_pid
        return checks(version, space, seconds, direct, self._room.options)

    def close(self) -> None:
        """Take out the claims that entered here; the server frees what they have."""
        room = self._room
        with room.mutex:
            mine = [each for each in room.places.values() if each.owner is self and each.state != "trying"]
        for place in mine:
            if room.take_out(place.claim.id) is not place:
                continue
            if place.stands:
                try:
                    self._end(place)
                except StoreError:
                    pass  # it ends with its session
            elif place.session is not None:
                room.drop(place.session)
        room.rest()


def _order(place: AdvisoryPlace) -> bool:
    return place.state != "using"


def _is(place: AdvisoryPlace, key: str) -> bool:
    return place.claim.spec.key == key


def end_on_server(make: Callable[..., Any], room: AdvisoryRoom, other: Any) -> None:
    """End a session on the server by a new one.

    Raises:
        StoreError: the server can't be reached.
        Refusal: it does not do that.
    """
    session = make(room.options, room.mutex)
    try:
        session.open()
        session.terminate(other)
    finally:
        session.end()
