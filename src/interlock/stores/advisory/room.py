"""The advisory locks of one process on one server: its claims, and the sessions that have or wait for each.

A claim that holds the lock has a session of its own, and so has a claim that waits, but of those of one process that
wait for the same name only the first: the others stand behind it in here.  Leases are kept in here too: the server
knows none, and frees what a session has when that ends.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any, Literal, Protocol

from interlock.core.claims import PENDING, SEPARATOR, USING, WRITER_UNITS, Check, Claim, ClaimView, LockSpec, kind_of
from interlock.core.errors import Unsupported
from interlock.core.queue import Tells
from interlock.runtime import _threads as threads
from interlock.runtime import clock
from interlock.runtime.process import HOST, checked_pid, in_forked_child, pid
from interlock.stores.advisory.session import BaseSession, Options, never_collected

now = clock.awake_or_not
LOOK_AFTER = 1.0  # seconds between two looks at the leases and sessions of holders
LACKS = "advisory locks have no {}: use a store that has it, such as postgresql://, mysql:// or redis://"


class Doubts(Protocol):
    """A queue that is told which of its claims are lost."""

    doubt: Callable[[str], object]


class AdvisoryPlace:
    """A claim of this process.

    Attributes:
        claim, waiter: as given.
        owner: the queue that it entered by, whose `doubt` is told its id when it is lost.
        key, kind: what the server is asked for; the kind is "_shared" for a reader.
        state: "trying", "pending" or "using".
        session: which has the lock or waits for it.
        stands: True while that session waits in the server, or is opened for it.
        over: is told when that ends; set by the caller that wants to know.
        fence: its fencing token, when using.
        until: when its lease ends.
        since, held: since when it is there, and holds the lock, in seconds since the epoch.
    """

    __slots__ = (
        "claim", "fence", "held", "key", "kind", "over", "owner", "session", "since", "stands", "state", "until",
        "waiter",
    )  # fmt: skip

    def __init__(self, claim: Claim, mysql: bool, waiter: Tells | None, owner: Doubts) -> None:
        self.claim, self.owner = claim, owner
        self.waiter: Any = waiter
        self.key, self.kind = number_of(claim.spec.key), kind_in(claim.spec, mysql)
        self.state: Literal["trying", "pending", "using"] = "trying"
        self.session: Any = None
        self.stands = False
        self.over: Any = None
        self.fence, self.until = 0, now() + claim.spec.ttl
        self.since = clock.time_of_day()
        self.held: float | None = None

    def take(self, fence: int) -> None:
        """Hold the lock."""
        self.fence, self.state, self.held = fence, "using", clock.time_of_day()
        self.until = now() + self.claim.spec.ttl


def number_of(key: str) -> int:
    """Return the 64-bit key of a name, as the server takes it."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, person=b"interlock").digest(), "big", signed=True)


def kind_in(spec: LockSpec, mysql: bool) -> str:
    """Return "_shared" for a reader, "" for an exclusive claim.

    Raises:
        Unsupported: advisory locks have no such kind.
    """
    if spec.once:
        raise Unsupported(LACKS.format("once"))
    if spec.capacity == WRITER_UNITS and not mysql and spec.units in (1, WRITER_UNITS):
        return "_shared" if spec.units == 1 else ""
    if spec.capacity != 1:
        raise Unsupported(LACKS.format(kind_of(spec.units, spec.capacity)))
    return ""


class AdvisoryRoom:
    """The claims and the sessions, for all connections of this process with the same URL, of threads and of tasks.

    A signal handler or a finalizer that locks may come inside of each section: none goes through what it may change.

    Args:
        options: what the URL says.
        make: makes a session.
    """

    def __init__(
        self, options: Options, make: Callable[[Options, AbstractContextManager[object]], BaseSession]
    ) -> None:
        self.options = options
        self._make = make
        self.start_afresh()

    def start_afresh(self) -> None:
        """Own nothing: no claim, no session."""
        self.mutex = threading.RLock()
        self.places: dict[str, AdvisoryPlace] = {}
        self._lines: dict[int, dict[str, AdvisoryPlace]] = {}
        self.sessions: set[BaseSession] = set()
        self._idle: list[Any] = []
        self._alarm = threads.Alarm(self._look_after, "interlock-advisory", now, lambda: None)

    # -- claims -----------------------------------------------------------------------------------------

    def add(self, place: AdvisoryPlace) -> bool:
        """Enter a claim; tell whether no claim of this process keeps the lock from it."""
        with self.mutex:
            line = self._lines.setdefault(place.key, {})
            free = all(each.kind and place.kind and each.state != "pending" for each in tuple(line.values()))
            line[place.claim.id] = self.places[place.claim.id] = place
            self._lines[place.key] = line  # a handler that came in between and left may have taken it for empty
            return free

    def take_out(self, id: str) -> AdvisoryPlace | None:
        """Take a claim out; the caller that gets it gives back what it has.  None if another caller did."""
        checked_pid()  # a child that was forked behind Python's back has none
        with self.mutex:
            place = self.places.pop(id, None)
            if place is not None:
                line = self._lines.get(place.key, {})
                line.pop(id, None)
                if not line:
                    self._lines.pop(place.key, None)  # unless a handler that came in between has done it
            return place

    def is_in(self, place: AdvisoryPlace) -> bool:
        """Tell whether it is still in here."""
        return self.places.get(place.claim.id) is place

    def settled(self, key: str) -> list[AdvisoryPlace]:
        """Return the claims of a key, or of all that begin so, but for those that try just now; holders first."""
        whole = key.endswith("\0")
        places = [each for each in tuple(self.places.values()) if each.state != "trying"]
        found = [
            each for each in places if each.claim.spec.key.startswith(key) and (whole or each.claim.spec.key == key)
        ]
        return sorted(found, key=lambda each: each.state != "using")

    def may_stand(self, place: AdvisoryPlace) -> bool:
        """Tell whether a claim is the next of this process to wait in the server's line; then it begins to do so."""
        with self.mutex:
            stands = place.stands or self._head(place.key) is not place
            place.stands = place.stands or not stands
            return not stands

    def most_to_wait(self) -> int:
        """Return how many sessions there may be if one more is to wait: not more than half of them do."""
        most = self.options.max_sessions
        with self.mutex:
            return most if 2 * sum(each.stands for each in tuple(self.places.values())) <= most + 1 else 0

    def nudge(self, key: int) -> None:
        """Let the next waiter of this process for a name look again."""
        with self.mutex:
            place = self._head(key)
            if place is not None and not place.stands:
                place.waiter.tell()

    def _head(self, key: int) -> AdvisoryPlace | None:
        return next((each for each in tuple(self._lines.get(key, {}).values()) if each.state == "pending"), None)

    # -- sessions ---------------------------------------------------------------------------------------

    def take(self, most: float) -> Any:
        """Return an unused session, or a new one, which is to be opened; None if there are `most`."""
        checked_pid()
        while most:
            with self.mutex:
                try:
                    found = self._idle.pop()
                except IndexError:
                    if len(self.sessions) >= most:
                        return None
                    made = self._make(self.options, self.mutex)
                    self.sessions.add(made)
                    return made
                if not found.has_ended():
                    return found
            self.drop(found)
        return None

    def keep(self, session: BaseSession) -> None:
        """Keep a session for the next caller, if it is fit."""
        with self.mutex:
            fit = session in self.sessions and session.alive and not session.silent and not session.busy
            if fit and len(self.sessions) <= self.options.max_sessions:
                self._idle.append(session)
                return
        self.drop(session)

    def drop(self, session: BaseSession) -> None:
        """End a session; the server frees what it has."""
        with self.mutex:
            known = session in self.sessions
            self.sessions.discard(session)
        session.end()
        if known and session.silent:
            self.rest()  # what broke one has mostly broken all

    def rest(self) -> None:
        """End the unused sessions."""
        with self.mutex:
            idle, self._idle = self._idle, []
        for session in idle:
            self.drop(session)

    # -- leases -----------------------------------------------------------------------------------------

    def mind(self, place: AdvisoryPlace) -> None:
        """See to it that the lease of a claim ends in time, and that the end of its session is heard of."""
        self._alarm.set(min(place.until, now() + LOOK_AFTER))

    def _look_after(self) -> None:
        """Take out claims whose leases or sessions have ended."""
        with self.mutex:
            over = [each for each in tuple(self.places.values()) if self._is_over(each)]
            for place in over:
                self.take_out(place.claim.id)
        for place in over:
            self.lose(place)
        with self.mutex:
            for place in tuple(self.places.values()):
                self.mind(place)

    def _is_over(self, place: AdvisoryPlace) -> bool:
        if place.until <= now():
            return place.state != "trying"
        session = place.session
        return place.state == "using" and not session.busy and (not session.alive or session.has_ended())

    def lose(self, place: AdvisoryPlace) -> None:
        """End the session of a claim that was taken out, and notify its queue."""
        if place.session is not None:
            self.drop(place.session)
            self.rest()  # the others lead to the same server, by the same way
        if place.state == "using":
            place.owner.doubt(place.claim.id)
        else:
            place.waiter.tell()
        self.nudge(place.key)


rooms: dict[Options, AdvisoryRoom] = {}
"""Those of this process."""


def _after_fork() -> None:
    for room in rooms.values():
        for session in list(room.sessions):
            session.abandon()
            never_collected.append(session)
        room.start_afresh()


in_forked_child(_after_fork)


LONG = 60  # seconds until the locks of a dead machine are free, from which on doctor warns


def view_of(place: AdvisoryPlace) -> ClaimView:
    """Return a claim of this process as people see it."""
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
    """Return what another process has, or waits for, as the server shows it."""
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


def ending(view: ClaimView, mysql: bool) -> str:
    """Say how a claim of another process is ended."""
    number = view.id.rpartition(" ")[2]
    statement = f"KILL {number}" if mysql else f"SELECT pg_terminate_backend({number})"
    return (
        f"{view.name!r} is locked by another process ({view.id}, {view.host}), and such a lock ends only with its "
        f"session: {statement} ends that"
    )


def full(most: int) -> str:
    """Say that no more sessions may be opened."""
    return (
        f"this process has {most} sessions with the database already, one for each lock that it holds or waits for: "
        f"release some, or allow more by ?max_sessions="
    )


def checks(row: tuple[str | None, ...], direct: bool, options: Options) -> list[Check]:
    """Return what `doctor` has found.

    Args:
        row: the server's version, how many locks it has room for, and its keepalives: seconds, seconds and probes.
        direct: False if a pooler is in between.
        options: what the URL says.
    """
    version, space, idle, interval, count = row
    seconds = int(idle or 0) + int(interval or 0) * int(count or 0) if direct and int(idle or 0) else 0
    return [
        Check("server", "ok", str(version)),
        Check("session", "ok" if direct else "warn", "direct" if direct else "behind a pooler in session mode"),
        Check("lock table", "ok", f"{space}, {options.max_sessions} of ours, each on a session of its own"),
        _dead_machine(seconds, direct or options.mysql),
    ]


def _dead_machine(seconds: int, direct: bool) -> Check:
    if 0 < seconds <= LONG:
        return Check("dead machine", "ok", f"its locks are free after about {seconds} s")
    if not direct:
        return Check(
            "dead machine", "warn",
            "the pooler frees what a machine had that died without a word: set tcp_keepidle = 15, tcp_keepintvl = 5 "
            "and tcp_keepcnt = 3 in its configuration, or it takes two hours on Linux",
        )  # fmt: skip
    after = f"{seconds} s" if seconds else "what its system says, two hours on Linux"
    return Check(
        "dead machine", "warn",
        f"the server frees what a machine had that died without a word after {after}: set tcp_keepalive_time = 15, "
        f"tcp_keepalive_interval = 5 and tcp_keepalive_probes = 3 in its configuration",
    )  # fmt: skip
