"""The advisory locks of one process on one server: its claims, and the sessions that have or wait for each.

A claim that holds the lock has a session of its own, and so has a claim that waits, but of those of one process that
wait for the same name only the first: the others stand behind it in here.  Leases are kept in here too: the server
knows none, and frees what a session has when that ends.
"""

import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Literal, TypeVar

from interlock.core.claims import WRITER_UNITS, Claim, LockSpec, kind_of
from interlock.core.errors import StoreError, Unsupported
from interlock.runtime import _threads as threads
from interlock.runtime import clock, log
from interlock.runtime.process import WeakRegistry, checked_pid, in_forked_child
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.session import IO_TIMEOUT, AdvisorySession, Refusal

LOOK_AFTER = 1.0  # seconds between two looks at the leases and the sessions of those who hold locks
LACKS = "advisory locks have no {}: use a store that has it, such as postgresql://, mysql:// or redis://"
TRIES = 6  # to end a session on the server; after that its own keepalives do it

T = TypeVar("T", bound=AdvisorySession)
now = clock.awake_or_not


class AdvisoryPlace:
    """A claim of this process.

    Attributes:
        claim: as given.
        key, shared: what the server is asked for.
        waiter: what wakes it while it waits.
        owner: the queue that it entered by, whose `doubt` is told its id when it is lost.
        state: "trying", "pending" or "using".
        session: which has the lock or waits for it.
        stands: True while that session waits in the server.
        over: what is told when it does so no more; set by who wants to know.
        fence: its fencing token, when using.
        until: when its lease ends.
        since, held: since when it is there, and holds the lock, in seconds since the epoch.
    """

    __slots__ = (
        "claim", "fence", "held", "key", "over", "owner", "session", "shared", "since", "stands", "state", "until",
        "waiter",
    )  # fmt: skip

    def __init__(self, claim: Claim, shared: bool, waiter: Any, owner: Any) -> None:
        self.claim = claim
        self.key = number_of(claim.spec.key)
        self.shared = shared
        self.waiter = waiter
        self.owner = owner
        self.state: Literal["trying", "pending", "using"] = "trying"
        self.session: Any = None
        self.stands = False
        self.over: Any = None
        self.fence = 0
        self.until = now() + claim.spec.ttl
        self.since = clock.time_of_day()
        self.held: float | None = None

    def take(self, fence: int) -> None:
        """Hold the lock."""
        self.fence, self.state, self.held = fence, "using", clock.time_of_day()
        self.until = now() + self.claim.spec.ttl


def is_shared(spec: LockSpec, mysql: bool) -> bool:
    """Tell whether it is a reader's.

    Raises:
        Unsupported: advisory locks have no such kind.
    """
    if spec.once:
        raise Unsupported(LACKS.format("once"))
    if spec.capacity == WRITER_UNITS and not mysql and spec.units in (1, WRITER_UNITS):
        return spec.units == 1
    if spec.capacity != 1:
        raise Unsupported(
            f"these locks are exclusive{'' if mysql else ' or reader/writer'}, there is no "
            f"{kind_of(spec.units, spec.capacity)}: use a store that has it, such as postgresql:// or redis://"
        )
    return False


def number_of(key: str) -> int:
    """Return the 64 bits that stand for a name, as the server takes them."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, person=b"interlock").digest(), "big", signed=True)


class AdvisoryRoom:
    """The claims and the sessions, for the threads and the tasks of this process.

    Args:
        options: what the URL says.
        terminate: opens a session and ends another one on the server, given the room and that one.
    """

    def __init__(self, options: Options, terminate: "Callable[[AdvisoryRoom, AdvisorySession], object]") -> None:
        self.options = options
        self._terminate = terminate
        self.start_afresh()
        _rooms.add(self)

    def start_afresh(self) -> None:
        """Own nothing: no claim, no session."""
        self.mutex = threading.RLock()
        self.places: dict[str, AdvisoryPlace] = {}
        self._lines: dict[int, dict[str, AdvisoryPlace]] = {}
        self.sessions: set[AdvisorySession] = set()
        self.idle: list[Any] = []
        self._alarm = threads.Alarm(self._look_after, "interlock-advisory", now, lambda: None)

    # -- claims -----------------------------------------------------------------------------------------

    def add(self, place: AdvisoryPlace) -> bool:
        """Enter a claim; tell whether nobody in here keeps the lock from it."""
        with self.mutex:
            line = self._lines.setdefault(place.key, {})
            free = all(each.shared and place.shared and each.state != "pending" for each in line.values())
            line[place.claim.id] = self.places[place.claim.id] = place
            return free

    def take_out(self, id: str) -> AdvisoryPlace | None:
        """Take a claim out; whoever gets it gives back what it has.  None if somebody else did."""
        checked_pid()  # a child that was forked behind Python's back has none
        with self.mutex:
            place = self.places.pop(id, None)
            if place is not None:
                line = self._lines[place.key]
                line.pop(id, None)
                if not line:
                    del self._lines[place.key]
            return place

    def is_in(self, place: AdvisoryPlace) -> bool:
        """Tell whether nobody has taken it out."""
        return self.places.get(place.claim.id) is place

    def line(self, key: int) -> list[AdvisoryPlace]:
        """Return who has a name in here or waits for it, in the order of their arrival."""
        with self.mutex:
            return list(self._lines.get(key, {}).values())

    def head(self, key: int) -> AdvisoryPlace | None:
        """Return who is the next in here to stand in the line of the server."""
        return next((each for each in self._lines.get(key, {}).values() if each.state == "pending"), None)

    def nudge(self, key: int) -> None:
        """Let the next who waits for a name in here look again."""
        with self.mutex:
            place = self.head(key) if key in self._lines else None
            if place is not None and place.session is None and place.waiter is not None:
                place.waiter.tell()

    # -- sessions ---------------------------------------------------------------------------------------

    def take(self, make: Callable[[Options, Any], T], waits: bool = False, beyond: bool = False) -> T | None:
        """Return a session that nobody uses, or a new one, which is to be opened; None if there may be no more.

        Args:
            make: makes one.
            waits: True if it is to wait in.
            beyond: True if it is needed for a moment, in order to give back another one.
        """
        checked_pid()
        while True:
            with self.mutex:
                options, places = self.options, self.places.values()
                if waits and sum(each.stands for each in places) >= options.max_waiting:
                    return None
                if not self.idle:
                    if len(self.sessions) >= options.max_sessions and not beyond:
                        return None
                    made = make(options, self.mutex)
                    self.sessions.add(made)
                    return made
                found: T = self.idle.pop()
                if not (found.silent or found.has_ended()):
                    return found
            self.drop(found)

    def keep(self, session: AdvisorySession) -> None:
        """Keep a session for the next who needs one."""
        with self.mutex:
            fit = session.alive and not session.silent and session in self.sessions
            if fit and len(self.sessions) <= self.options.max_sessions:
                self.idle.append(session)
                return
        self.drop(session)

    def drop(self, session: AdvisorySession) -> None:
        """End a session; the server frees what it has."""
        with self.mutex:
            known = session in self.sessions
            self.sessions.discard(session)
        session.end()
        if known and session.silent and session.pid == session.reported_pid:  # else a pooler may have lent it
            threads.spawn("interlock-advisory-end", self._end_on_server, session)

    def rest(self) -> None:
        """End the sessions that nobody uses."""
        with self.mutex:
            idle, self.idle = self.idle, []
        for session in idle:
            self.drop(session)

    def _end_on_server(self, session: AdvisorySession) -> None:
        """End on the server, too, what was given up here: something in between may have forgotten the way to it."""
        for _ in range(TRIES):
            try:
                self._terminate(self, session)
                return
            except StoreError:
                threads.sleep(IO_TIMEOUT)  # the server is away
            except Refusal as error:
                log.warn("a session that gives no answer could not be ended on the server: %s", error)
                return

    # -- leases -----------------------------------------------------------------------------------------

    def mind(self, place: AdvisoryPlace) -> None:
        """See to it that the lease of a claim ends in time, and that the end of its session is heard of."""
        self._alarm.set(min(place.until, now() + LOOK_AFTER))

    def _look_after(self) -> None:
        """Take out whose lease is over, or whose session has ended."""
        with self.mutex:
            over = [each for each in self.places.values() if self._is_over(each)]
            over = [each for each in over if self.take_out(each.claim.id) is each]
        for place in over:
            if place.session is not None:
                self.drop(place.session)
            if place.state == "using":
                place.owner.doubt(place.claim.id)
            elif place.waiter is not None:
                place.waiter.tell()
            self.nudge(place.key)
        with self.mutex:
            moment = min((each.until for each in self.places.values()), default=None)
        if moment is not None:
            self._alarm.set(min(moment, now() + LOOK_AFTER))

    def _is_over(self, place: AdvisoryPlace) -> bool:
        if place.until <= now():
            return place.state != "trying"
        session = place.session
        return place.state == "using" and not session.busy and (not session.alive or session.has_ended())


_rooms: WeakRegistry[AdvisoryRoom] = WeakRegistry()
_inherited: list[AdvisorySession] = []  # never collected, which might end them


def _after_fork() -> None:
    for room in _rooms:
        for session in list(room.sessions):
            session.abandon()
            _inherited.append(session)
        room.start_afresh()


in_forked_child(_after_fork)
