"""The store on advisory locks, for both colours: tasks ask by threads of its own."""

from collections.abc import Sequence
from functools import partial
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

from interlock.core.claims import PENDING, SEPARATOR, USING, Check, Claim, ClaimView, LockSpec
from interlock.core.effects import Ask, Op
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.queue import EnterResult, Renewed
from interlock.core.oldstore import BaseStore
from interlock.runtime.process import HOST, pid
from interlock.runtime.sync import ThreadEvent, within_a_step
from interlock.stores.advisory.places import AdvisoryClaim, number_of
from interlock.stores.advisory.room import Room
from interlock.stores.advisory.rooms import let_go
from interlock.stores.advisory.session import IO_TIMEOUT, Refusal, refused

if TYPE_CHECKING:
    from interlock.runtime.aio import TaskEvent

LAST_START = 0.9 * IO_TIMEOUT  # seconds in line for a thread; those before may all wait for the same answer
LONG = 60  # seconds until the locks of a dead machine are free, from which on doctor warns


class EnterStep(partial[EnterResult]):
    """The step that enters, which a claim does not wait for longer than for the server."""

    def begin_before(self, deadline: float) -> EnterResult:
        """Do it, unless it is too late.

        Args:
            deadline: of the monotonic clock.

        Raises:
            StoreError: nothing was done.
        """
        if monotonic() >= deadline:
            raise StoreError(f"no thread was free to ask the server for {LAST_START:g} s: does it answer?")
        return self()


class AdvisoryStore(BaseStore):
    """A store on the advisory locks of PostgreSQL.

    Args:
        room: the sessions of this process.
    """

    frees_at_death = True

    def __init__(self, room: Room) -> None:
        self._room = room
        self._closed = False
        self.doubt: Any = lambda id: None

    def ask(self, message: Any) -> Any:
        """Do a step.

        Raises:
            StoreError: it is a signal handler that asks, in the middle of a step of its own thread: what that says to
                its session, and hears from it, would be mixed with this one's.
        """
        here, inside = get_ident(), self._room.inside
        if here in inside:
            raise within_a_step()
        try:
            inside.add(here)
            return message()
        finally:
            inside.discard(here)

    async def aask(self, message: Any) -> Any:
        """Do a step in a thread; it comes to its end even if the task is cancelled, which then hears of that."""
        from interlock.runtime.offload import offload  # only programs with an event loop load asyncio

        if type(message) is not EnterStep:
            return await offload(self._room.executor, message)
        deadline = monotonic() + LAST_START
        return await offload(self._room.executor, lambda: message.begin_before(deadline))

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """As `Queue.enter`."""
        step = EnterStep(self._room.enter, claim, wakeup, wait, again, lambda id: self.doubt(id))
        result: EnterResult = yield Ask(self, step)
        return result

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        removed: bool = yield Ask(self, partial(self._room.leave, claim))
        return removed

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """As `Queue.renew`."""
        renewed: list[Renewed] = yield Ask(self, partial(self._room.renew, claims))
        return renewed

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`; what other processes hold is found by its name only, and shown by its session."""
        views: list[ClaimView] = yield Ask(self, partial(self._look, key))
        return views

    def _look(self, key: str) -> list[ClaimView]:
        room = self._room
        whole = key.endswith(SEPARATOR)
        with room.mutex:
            found = sorted((each for each in room.places if each.state != "trying"), key=_order)
            own = [each for each in found if (each.claim.spec.key.startswith(key) if whole else _is(each, key))]
            pids = {session.pid for session in room.sessions}
            views = [_view(place) for place in own]
        if whole:
            return views
        try:
            rows = room.ready().look(number_of(key))
        except Refusal as error:
            raise refused(error) from error
        with room.mutex:
            pids |= {session.pid for session in room.sessions}  # one may have been opened meanwhile
        foreign = [_foreign(key, row) for row in rows if int(str(row[0])) not in pids]
        return sorted([*views, *foreign], key=lambda view: view.state != USING)

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`, for claims of this process.

        Raises:
            StoreError: another process has it: only the end of its session would take it away.
        """
        count: int = yield Ask(self, partial(self._evict, key, id))
        return count

    def _evict(self, key: str, id: str | None) -> int:
        room = self._room
        with room.mutex:
            found = [each for each in room.places if _is(each, key) and id in (None, each.claim.id)]
        count = 0
        for place in found:
            waited = place.state == "pending"
            count += room.end(place)
            if waited and place.wakeup is not None:
                place.wakeup.tell()
        if not count:
            self._refuse_foreign(key, id)
        return count

    def _refuse_foreign(self, key: str, id: str | None) -> None:
        for view in self._look(key):
            number = view.id.rpartition(" ")[2]
            ending = f"KILL {number}" if self._room.options.mysql else f"SELECT pg_terminate_backend({number})"
            if (view.host != HOST or view.pid != pid()) and id in (None, view.id):
                raise StoreError(
                    f"{view.name!r} is locked by another process ({view.id}, {view.host}), and such a lock ends only "
                    f"with its session: {ending} ends that, with all other locks that it has"
                )

    def lock_in_transaction(self, spec: LockSpec, timeout: float | None, connection: Any) -> Any:
        """Return a lock that the transaction of a connection of SQLAlchemy holds until it ends.

        Raises:
            InvalidArgument: it is no such connection.
        """
        if self._room.options.mysql:
            raise InvalidArgument(
                "GET_LOCK belongs to the session and survives the commit, so no transaction can hold such a lock: "
                "lock a row of yours (SELECT … FOR UPDATE), or take the lock before the transaction, release it after"
            )
        from interlock.stores.advisory.transaction import lock_of  # others need no SQLAlchemy

        return lock_of(self._room, spec, timeout, connection)

    def thread_wakeup(self) -> ThreadEvent:
        """Return a wake-up for the calling thread."""
        return ThreadEvent()

    def task_wakeup(self) -> "TaskEvent":
        """Return a wake-up for the calling task."""
        from interlock.runtime.aio import TaskEvent  # only programs with an event loop load asyncio

        return TaskEvent()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        session, options = self._room.ready(), self._room.options
        direct = session.pid == session.reported_pid
        try:
            version, room = session.about()
            seconds = session.dead_after()
        except Refusal as error:
            raise refused(error) from error
        return [
            Check("server", "ok", version),
            Check("session", "ok" if direct else "warn", "direct" if direct else "behind a pooler in session mode"),
            Check("lock table", "ok", f"{room}, {options.max_locks} of ours"),
            _dead_machine(seconds, direct or options.mysql),
        ]

    def close(self) -> None:
        """Give the sessions back; the last connection of this process ends them."""
        if not self._closed:
            self._closed = True
            let_go(self._room)


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


def _order(place: AdvisoryClaim) -> bool:
    return place.state != "using"


def _is(place: AdvisoryClaim, key: str) -> bool:
    return place.claim.spec.key == key


def _view(place: AdvisoryClaim) -> ClaimView:
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
        expires_in=place.until - monotonic(),
    )


def _foreign(key: str, row: list[str | None]) -> ClaimView:
    host, _, number = (row[3] or "").removeprefix("interlock ").rpartition(":")
    return ClaimView(
        name=key.partition(SEPARATOR)[2],
        id=f"session {row[0]}",
        state=USING if row[1] == "t" else PENDING,
        units=1,
        capacity=1 if row[2] == "ExclusiveLock" else 1 << 30,
        fence=None,
        host=host or "?",
        pid=int(number) if number.isdigit() else 0,
        thread="",
        label="",
        since=float(row[4] or 0),
        expires_in=float("inf"),
    )
