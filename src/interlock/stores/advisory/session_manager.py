"""The claims and sessions of advisory locks of one process on one server.

Each claim that holds a lock has its own session.  If several claims of this process wait for one name, only the first
has a session, which waits in the server; the others wait behind it in this module.  Leases are kept here too,
because the server has none: it releases the lock of a session when the session ends.
"""

import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Literal

from interlock.core.claims import PENDING, SEPARATOR, USING, WRITER_UNITS, Claim, ClaimView, keys_of
from interlock.core.queue import Granted, Wakeable
from interlock.runtime import _threads as threads
from interlock.runtime import clock
from interlock.runtime.process import HOST, checked_pid, in_forked_child, pid
from interlock.stores.advisory.session import BaseSession, Options, never_collected

now = clock.awake_or_not
LOOK_AFTER = 1.0  # seconds between two checks of the leases and sessions of holders


class AdvisoryPlace:
    """A claim of this process.

    Attributes:
        claim, waiter: the arguments.
        on_unverified: of the queue by which the claim entered: it is called with the id when the claim is lost.
        key: the lock's key in the server.
        kind: "_shared" for a reader, "" otherwise.
        state: "trying", "pending" or "using".
        session: the session that holds the lock or waits for it.
        is_waiting: True while that session waits in the server, or is being opened for it.
        fence: its fencing token, when using.
        until: the end of its lease, in seconds of `now`.
        since: the time of its entry, in seconds since the epoch.
        held: the time of its acquisition, in seconds since the epoch; None before.
    """

    __slots__ = (
        "claim", "fence", "held", "is_waiting", "key", "kind", "on_unverified", "session", "since", "state", "until",
        "waiter",
    )  # fmt: skip

    def __init__(self, claim: Claim, waiter: Wakeable | None, on_unverified: Callable[[str], object]) -> None:
        self.claim, self.on_unverified = claim, on_unverified
        self.waiter = waiter
        self.key = number_of(claim.spec.key)
        self.kind = "_shared" if claim.spec.units < claim.spec.capacity else ""
        self.state: Literal["trying", "pending", "using"] = "trying"
        self.session: Any = None
        self.is_waiting = False
        self.fence, self.until = 0, now() + claim.spec.ttl
        self.since = clock.time_of_day()
        self.held: float | None = None

    def wake(self, message: Granted | None = None) -> None:
        """Wake the caller, if it waits."""
        if self.waiter is not None:
            self.waiter.wake(message)


def number_of(key: str) -> int:
    """Return the 64-bit key of a lock in the server."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, person=b"interlock").digest(), "big", signed=True)


class AdvisoryRoom:
    """The claims and sessions of this process for one URL, shared by all its clients.

    A signal handler or a finalizer that uses a lock may interrupt any section under the mutex, which is re-entrant:
    therefore each section iterates over a copy.

    Args:
        options: the options of the URL.
        kind: the class of its sessions.
    """

    def __init__(self, options: Options, kind: type[BaseSession]) -> None:
        self.options = options
        self.kind = kind
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all claims and sessions."""
        self.mutex = threading.RLock()
        self.places: dict[str, AdvisoryPlace] = {}
        self.sessions: set[BaseSession] = set()
        self._idle: list[Any] = []
        self._alarm = threads.Alarm(self._look_after, "interlock-advisory", now, lambda: None)

    # -- claims -----------------------------------------------------------------------------------------

    def add(self, place: AdvisoryPlace) -> bool:
        """Add a claim; return True if no other claim of this process excludes it."""
        with self.mutex:
            others = self._line(place.key)
            self.places[place.claim.id] = place
        return all(each.kind and place.kind and each.state != "pending" for each in others)

    def take_out(self, id: str) -> AdvisoryPlace | None:
        """Remove a claim and return it; the caller must release its lock.  None if already removed."""
        checked_pid()  # forgets all claims in a child that was forked without Python's fork hooks
        with self.mutex:
            return self.places.pop(id, None)

    def grant(self, place: AdvisoryPlace, fence: str | None) -> bool:
        """Record the grant of a claim with a fence; return False if the claim was removed.

        Args:
            place: the claim.
            fence: its fence; None if its session has no grant.
        """
        with self.mutex:
            if fence is None or not self.is_in(place):
                return False
            place.fence, place.state, place.held = int(fence), "using", clock.time_of_day()
            place.until = now() + place.claim.spec.ttl
        self.mind(place)
        return True

    def is_in(self, place: AdvisoryPlace) -> bool:
        """Return True if a claim was not removed."""
        return self.places.get(place.claim.id) is place

    def settled(self, key: str) -> list[AdvisoryPlace]:
        """Return the holders and then the waiters of a key, or of all keys of a namespace."""
        places = [each for each in tuple(self.places.values()) if each.state != "trying"]
        keys = keys_of(key, [each.claim.spec.key for each in places])
        return sorted(
            [each for each in places if each.claim.spec.key in keys], key=lambda each: each.state != "using"
        )

    def may_stand(self, place: AdvisoryPlace) -> bool:
        """Return True, and mark the claim as waiting in the server, if it is the first here."""
        with self.mutex:
            is_waiting = place.is_waiting or self._head(place.key) is not place
            place.is_waiting = place.is_waiting or not is_waiting
            return not is_waiting

    def most_to_wait(self) -> int:
        """Return the limit of sessions for one more waiter; 0 if waiters use half of them."""
        most = self.options.max_sessions
        with self.mutex:
            return most if 2 * sum(each.is_waiting for each in tuple(self.places.values())) <= most + 1 else 0

    def nudge(self, key: int) -> None:
        """Wake the next waiter of this process for a name, so that it waits in the server."""
        with self.mutex:
            place = self._head(key)
            if place is not None and not place.is_waiting:
                place.wake()

    def _head(self, key: int) -> AdvisoryPlace | None:
        return next((each for each in self._line(key) if each.state == "pending"), None)

    def _line(self, key: int) -> list[AdvisoryPlace]:
        return [each for each in tuple(self.places.values()) if each.key == key]

    # -- sessions ---------------------------------------------------------------------------------------

    def take(self, most: float) -> Any:
        """Return an idle session, or a new one to open; None if there are `most`."""
        checked_pid()
        while most:
            with self.mutex:
                try:
                    found = self._idle.pop()
                except IndexError:
                    if len(self.sessions) >= most:
                        return None
                    made = self.kind(self.options, self.mutex)
                    self.sessions.add(made)
                    return made
                if not found.has_ended():
                    return found
            self.drop(found)
        return None

    def keep(self, session: BaseSession) -> None:
        """Keep a session for the next caller, or end it if it is unusable."""
        with self.mutex:
            good = session.alive and not session.silent and not session.busy
            if good and session in self.sessions and len(self.sessions) <= self.options.max_sessions:
                self._idle.append(session)
                return
        self.drop(session)

    def drop(self, session: BaseSession) -> None:
        """End a session; the server releases its lock."""
        self.sessions.discard(session)
        session.end()
        if session.silent:
            self.close_idle()  # the idle ones are probably broken as well

    def close_idle(self) -> None:
        """End all idle sessions."""
        with self.mutex:
            idle, self._idle = self._idle, []
        for session in idle:
            self.drop(session)

    # -- leases -----------------------------------------------------------------------------------------

    def mind(self, place: AdvisoryPlace) -> None:
        """Schedule the next check of leases and sessions, before this claim's lease ends."""
        self._alarm.set(min(place.until, now() + LOOK_AFTER))

    def _look_after(self) -> None:
        """Remove the claims whose leases or sessions have ended."""
        for place in tuple(self.places.values()):
            with self.mutex:
                over = self._is_over(place) and self.take_out(place.claim.id) is place
            if over:
                self.lose(place)
            else:
                self.mind(place)

    def _is_over(self, place: AdvisoryPlace) -> bool:
        session = place.session
        if place.until <= now():
            # The lease of a waiter does not end while a session is opened for it.
            return place.state != "trying" and (session is not None or not place.is_waiting)
        return place.state == "using" and not session.busy and (not session.alive or session.has_ended())

    def lose(self, place: AdvisoryPlace) -> None:
        """End the session of a removed claim, and notify its queue or waiter."""
        if place.session is not None:
            self.drop(place.session)
            self.close_idle()  # the idle ones use the same server and network path
        if place.state == "using":
            place.on_unverified(place.claim.id)
        else:
            place.wake()
        self.nudge(place.key)


rooms: dict[Options, AdvisoryRoom] = {}
"""The session managers of this process, by their options."""


def _after_fork() -> None:
    for room in rooms.values():
        for session in list(room.sessions):
            session.abandon()
            never_collected.append(session)
        room.start_afresh()


in_forked_child(_after_fork)


def view_of(place: AdvisoryPlace) -> ClaimView:
    """Return the public view of a claim of this process."""
    spec = place.claim.spec
    return ClaimView(
        name=spec.key.partition(SEPARATOR)[2],
        id=place.claim.id,
        state=USING if place.state == "using" else PENDING,
        units=spec.units,
        capacity=spec.capacity,
        fence=place.fence or None,
        host=HOST,
        pid=pid(),
        thread=place.claim.who,
        label=spec.label,
        since=place.since,
        expires_in=max(0.0, place.until - now()),
        held_since=place.held,
    )


def foreign_view(key: str, row: tuple[str | None, ...]) -> ClaimView:
    """Return the view of another process's claim from a row of the "look" statement."""
    number, granted, mode, application, since = row
    host, _, process = (application or "").removeprefix("interlock ").rpartition(":")
    return ClaimView(
        name=key.partition(SEPARATOR)[2],
        id=f"session {number}",
        state=USING if granted == "t" else PENDING,
        units=1,
        capacity=1 if mode == "ExclusiveLock" else WRITER_UNITS,
        fence=None,
        host=host or "?",
        pid=int(process) if process.isdigit() else 0,
        thread="",
        label="",
        since=float(since or 0),
        expires_in=float("inf"),
    )
