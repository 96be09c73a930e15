"""The queue on sessions: holders have sessions, and first waiters wait on sessions."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from interlock.core._async.protocols import AsyncQueue, AsyncWaiting
from interlock.core.claims import SEPARATOR, USING, Check, Claim, ClaimView, namespace_of
from interlock.core.errors import StoreError, UnknownOutcome, Unsupported
from interlock.core.failures import Refused, outage
from interlock.core.line import RENEWAL_GONE, RENEWAL_OK
from interlock.core.queue import CLAIM_GONE, OCCUPIED, REFUSED, EnterResult, Granted, Held, Renewed, Wakeable
from interlock.runtime import _aio as rt
from interlock.storekit._async.step_queue import UNAVAILABLE_PAUSE
from interlock.stores.advisory.session import IO_TIMEOUT, BaseSession, Rows
from interlock.stores.advisory.session_manager import (
    AdvisoryPlace,
    AdvisoryRoom,
    foreign_view,
    now,
    number_of,
    view_of,
)
from interlock.stores.advisory.statements import WAIT_SLICE

POLL_INTERVAL = 1.0  # seconds between two polls of a waiter; a safety net
NO_SESSION = 0.1  # seconds after which a waiter asks again for a session to wait on
SOONEST = 0.05  # seconds after which a wait in the server is cancelled again
SESSION_CHECK_INTERVAL = 0.001  # seconds between two checks whether a session is free
RENEWED_WITHIN = 60.0  # seconds
LATE_RELEASE = 60  # seconds; doctor warns if the locks of a dead machine are released later
DEAD = "The locks of a crashed machine are released after {}"
SET_KEEPALIVES = (
    ": set tcp_keepalive_time = 15, tcp_keepalive_interval = 5 and tcp_keepalive_probes = 3 in the configuration of "
    "the server"
)
ALL_SESSIONS_IN_USE = (
    "This process has {} sessions with the database already, one for each lock that it holds or waits for. Release "
    "some locks, or raise ?max_sessions=."
)
NOT_RENEWED = StoreError("The session did not reply in time.")


# async only
async def blocking(session: BaseSession, text: str, seconds: float | None) -> Rows:
    """See `BaseSession.perform`, in a worker thread."""
    return await (rt.run_in_daemon_thread if seconds is None else rt.offload)(session.perform, text, seconds)


class AsyncAdvisoryQueue(AsyncQueue):
    """A queue on the sessions of a process.

    Args:
        room: the claims and sessions of this process.
        perform: see `BaseSession.perform`.
    """

    def __init__(
        self, room: AdvisoryRoom, perform: Callable[[BaseSession, str, float | None], rt.Result[Rows]]
    ) -> None:
        self._room = room
        self._perform = perform
        self.on_unverified: Callable[[str], object] = bool  # called from any thread, with each claim that is lost

    def subscribe(self) -> AsyncWaiting:
        return rt.AsyncWaiter()

    def watch_doubts(self, verify: Callable[[str], bool]) -> None:
        self.on_unverified = verify

    def close_idle(self) -> None:
        self._room.close_idle()

    # -- entering ---------------------------------------------------------------------------------------

    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        room = self._room
        place = room.places.get(claim.id)
        if place is None:
            if already_queued:
                return CLAIM_GONE
            place = AdvisoryPlace(claim, waiter, self.on_unverified)
            if waiter is None or not may_queue:
                return await self._try(place, room.add(place), may_queue)
            place.state = "pending"
            room.add(place)
        return await self._stands(place, waiter)

    async def _try(self, place: AdvisoryPlace, free: bool, wait: bool) -> EnterResult:
        """Try to take the lock in the server, unless another claim of this process excludes it."""
        room, most = self._room, self._room.options.max_sessions
        try:
            if free:
                place.session = await self._session(most)
                if place.session is None and not wait:
                    raise StoreError(ALL_SESSIONS_IN_USE.format(most))
            if place.session is not None:
                ((fence,),) = await self._say(place.session, "attempt", place.key, place.kind)
                if room.grant(place, fence):
                    return EnterResult("using", place.fence)
        finally:
            if place.state == "trying":  # no other caller releases the lock of a claim that still tries
                room.take_out(place.claim.id)
                await rt.finish(self._end, place)
        return OCCUPIED if wait else REFUSED

    async def _session(self, most: float = math.inf) -> Any:
        """Return an idle session, or open a new one; None if there are `most`."""
        session = self._room.take(most)
        if session is not None and session.fd < 0:
            try:
                await rt.offload(session.connect)
            except BaseException:
                self._room.drop(session)
                raise
        return session

    async def _stands(self, place: AdvisoryPlace, waiter: Wakeable | None) -> EnterResult:
        """Return the state of a claim; make the first waiter of this process wait in the server."""
        room, claim, pause = self._room, place.claim, POLL_INTERVAL
        with room.mutex:  # it is renewed, or was removed because its lease had expired
            place.until = now() + claim.spec.ttl
        place.waiter = waiter or place.waiter
        room.mind(place)
        if room.may_stand(place):
            try:
                pause = await self._stand(place)
            except StoreError as error:  # the server is unavailable, or accepts no more sessions
                return EnterResult("busy", 0, UNAVAILABLE_PAUSE, False, outage(error, claim.spec.ttl, True))
        if not room.is_in(place):
            return CLAIM_GONE
        return EnterResult("using", place.fence) if place.state == "using" else EnterResult("pending", 0, pause)

    async def _stand(self, place: AdvisoryPlace) -> float:
        """Let a claim wait in the server; return when it polls unless notified."""
        room, session = self._room, None
        try:
            session = await self._session(room.most_to_wait())
        finally:
            with room.mutex:
                place.until, place.is_waiting = (
                    now() + place.claim.spec.ttl,
                    session is not None and room.is_in(place),
                )
                place.session = session if place.is_waiting else None
        if (
            place.is_waiting
            and rt.start_background("interlock-advisory-wait", self._wait, place, session) is not None
        ):
            return POLL_INTERVAL
        with room.mutex:
            place.is_waiting, place.session = False, None
        if session is not None:
            room.keep(session)
        return NO_SESSION

    async def _wait(self, place: AdvisoryPlace, session: BaseSession) -> None:
        """Wait in the server for the lock, in a separate task, until granted or cancelled."""
        room, fence = self._room, None
        try:
            if "queue" in session.words:
                fence = await self._in_slices(place, session)
            else:
                ((fence,),) = await self._say(session, "wait", place.key, place.kind, seconds=None)
                if fence == "apart":
                    ((fence,),) = await self._say(session, "fence")
        except Refused:
            fence = None  # the wait was cancelled, and the session may hold the lock
        except (StoreError, rt.CANCELLED):
            fence = None
            room.drop(session)
        with room.mutex:
            granted = room.grant(place, fence)
            left = not room.is_in(place)
            place.is_waiting = False
        if left:
            return  # the caller that removed the claim releases its lock
        if granted:
            place.wake(Granted(place.claim.id, place.fence))
            room.nudge(place.key)
            return
        place.session = None
        try:
            with suppress(StoreError):  # the session was ended
                await self._give_back(place, session)
        finally:
            place.wake()

    async def _in_slices(self, place: AdvisoryPlace, session: BaseSession) -> str | None:
        """Wait in the server, in slices; return the fence, or None if the claim was removed."""
        fence: str | None = None
        ((ticket,),) = await self._say(session, "queue", place.key)
        while fence is None and self._room.is_in(place):
            ((fence,),) = await self._say(
                session, "wait", place.key, place.kind, ticket=ticket, seconds=WAIT_SLICE + IO_TIMEOUT
            )
        return fence

    # -- leaving ----------------------------------------------------------------------------------------

    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        place = self._room.take_out(claim.id)
        if place is None or place.state == "trying":
            return False
        alive = place.until > now()
        return await self._end(place) and alive

    async def _end(self, place: AdvisoryPlace) -> bool:
        """Release the lock of a removed claim; return False if its session has ended.

        Raises:
            StoreError: the server does not reply.
        """
        try:
            if place.is_waiting:
                await self._break_off(place)
            return place.session is None or await self._give_back(place, place.session)
        finally:
            self._room.nudge(place.key)

    async def _break_off(self, place: AdvisoryPlace) -> None:
        """End a wait, which may be granted at this moment."""
        pause, deadline = SOONEST, now() + IO_TIMEOUT
        while place.is_waiting and place.session is not None and now() < deadline:
            try:
                await self.ask("break off", pid=place.session.pid)
            except StoreError:
                deadline = 0.0
            # The cancel has no effect if it arrives before the server has begun the wait.
            again = now() + pause
            while place.is_waiting and now() < again:
                await rt.sleep(SESSION_CHECK_INTERVAL)
            pause *= 2
        if place.is_waiting and place.session is not None:
            place.session.silent = True

    async def _give_back(self, place: AdvisoryPlace, session: BaseSession) -> bool:
        """Release the lock of a session, and keep the session; return False if it has ended.

        Raises:
            StoreError: the server does not reply, or refuses.
        """
        deadline = now() + IO_TIMEOUT
        try:
            if session.silent:
                raise UnknownOutcome("The session with the database did not reply, and was closed.")
            while session.busy and now() < deadline:
                await rt.sleep(SESSION_CHECK_INTERVAL)  # a renewal of its lease is in progress
            try:
                await self._say(session, "give back", place.key)
            except Refused:  # a cancel of the wait came late, and hit the release
                await self._say(session, "give back", place.key)
        except StoreError as error:
            session.end()  # it may hold the lock
            if session.silent or isinstance(error, Refused):
                raise
            return False
        finally:
            self._room.keep(session)
        return True

    # -- renewing ---------------------------------------------------------------------------------------

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        answers: dict[str, Renewed] = {}
        waits: list[rt.AsyncWaiter[bool]] = [rt.AsyncWaiter() for _ in claims]
        for claim, over in zip(
            claims, waits, strict=True
        ):  # concurrently, so that a slow server does not let the last leases expire
            if (
                len(waits) == 1
                or rt.start_background("interlock-advisory-renew", self._renew_one, claim, answers, over) is None
            ):
                await self._renew_one(claim, answers, over)
        for each in waits:
            await each.wait(RENEWED_WITHIN)
        return [answers.get(claim.id, NOT_RENEWED) for claim in claims]

    async def _renew_one(self, claim: Claim, answers: dict[str, Renewed], over: "rt.AsyncWaiter[bool]") -> None:
        """Renew a claim; then notify the caller."""
        try:
            answers[claim.id] = await self._renew(claim)
        finally:
            over.wake(True)

    async def _renew(self, claim: Claim) -> Renewed:
        room, started, place = self._room, now(), self._room.places.get(claim.id)
        if place is None or place.until <= started:
            return RENEWAL_GONE
        if place.state == "using" and not place.session.busy:
            try:
                await self._say(place.session, "ping")
            except StoreError as error:
                if place.session.alive:
                    return error
                if room.take_out(claim.id) is place:
                    room.lose(place)
        with room.mutex:
            if not room.is_in(place):
                return RENEWAL_GONE
            place.until = started + claim.spec.ttl
        return RENEWAL_OK

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        raise Unsupported("Advisory locks end with their sessions and cannot be handed over.")

    # -- from outside -----------------------------------------------------------------------------------

    async def look(self, key: str) -> list[ClaimView]:
        """List the claims of a name, or those of this process in a namespace.

        The server knows only hashes of names: claims of other processes are listed by their sessions, for one name.
        """
        if key.endswith(SEPARATOR):
            return [view_of(each) for each in self._room.settled(key)]
        rows = await self.ask("look", number_of(key))
        own = self._room.settled(key)
        ours = {str(each.pid) for each in list(self._room.sessions)}  # also sessions that are about to release it
        views = [view_of(each) for each in own if each.session is not None]
        views += [foreign_view(key, row) for row in rows if row[0] not in ours]
        views += [view_of(each) for each in own if each.session is None]
        return sorted(views, key=lambda view: view.state != USING)

    async def _say(
        self,
        session: BaseSession,
        word: str,
        key: int = 0,
        kind: str = "",
        pid: int = 0,
        ticket: str | None = "",
        seconds: float | None = IO_TIMEOUT,
    ) -> Rows:
        """Perform a statement; see `BaseSession.text` and `perform`."""
        text = session.text(word, key, kind, pid, ticket)
        session.begin()
        return await self._perform(session, text, seconds)

    async def ask(self, word: str, key: int = 0, pid: int = 0) -> Rows:
        """Send a request on an idle session.

        Raises:
            StoreError: the server is unreachable, or refuses.
        """
        session = await self._session()
        try:
            return await self._say(session, word, key, pid=pid)
        finally:
            self._room.keep(session)

    async def evict(self, key: str, id: str | None) -> int:
        """Evict claims of this process; see `Queue.evict`.

        Raises:
            StoreError: another process holds the lock: only the end of its session releases it.
        """
        count = 0
        for place in self._room.settled(key):
            if id in (None, place.claim.id) and self._room.take_out(place.claim.id) is place:
                count += await self._end(place)
                place.session = None
                self._room.lose(place)
        if not count:
            for view in await self.look(key):
                if id in (None, view.id):
                    raise StoreError(
                        f"Another process ({view.id}, {view.host}) holds {view.name!r}, and an advisory lock ends "
                        "only with its session. To end the session: "
                        + self._room.kind.words["end"].format(pid=view.id.rpartition(" ")[2])
                    )
        return count

    async def namespaces(self) -> list[str]:
        """List the namespaces in which this process holds or waits: the server has only hashes."""
        return sorted({namespace_of(each.claim.spec.key) for each in list(self._room.places.values())})

    async def doctor(self) -> list[Check]:
        ((version, space, idle, interval, count),) = await self.ask("about")
        seconds = int(idle or 0) + int(interval or 0) * int(count or 0)
        soon = 0 < seconds <= LATE_RELEASE
        after = f"{seconds} s" if seconds else "the time-out of its system (two hours on Linux)"
        most = self._room.options.max_sessions
        return [
            Check("server", "ok", str(version)),
            Check("lock table", "ok", f"{space}, {most} of this process, each with its own session."),
            Check("dead machine", "ok" if soon else "warn", DEAD.format(after) + ("" if soon else SET_KEEPALIVES)),
        ]

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Lose all claims that entered by this queue, and end their sessions; the server releases their locks."""
        for place in list(self._room.places.values()):
            if (
                place.on_unverified is self.on_unverified
                and place.state != "trying"
                and self._room.take_out(place.claim.id) is place
            ):
                self._room.lose(place)
        self._room.close_idle()
