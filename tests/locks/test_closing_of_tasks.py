"""The end of a connection of tasks, of a loop, and of the interpreter: who is waited for, and what is released."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import LockSpec
from interlock.core.errors import StoreError
from interlock.locks.aio import closing
from interlock.client._async.grants import AsyncGrant
from interlock.locks.aio.session import Session
from interlock.client.base import AcquireOptions
from interlock.runtime.aio import arun
from tests.support.spied_store import Clock, SpiedStore, away, claim, enters


class Loop:
    """What is asked of a loop that is not the running one."""

    def __init__(self, runs: bool) -> None:
        self._runs = runs
        self.asked: list[Any] = []

    def is_running(self) -> bool:
        """As of every loop."""
        return self._runs

    def call_soon_threadsafe(self, function: Any) -> None:
        """As of every loop; it only notes it."""
        self.asked.append(function)


RUNS: Any = Loop(True)
ENDED: Any = Loop(False)


class SpiedTaskStore(SpiedStore):
    """As `SpiedStore`; it notes how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[str] = []

    async def leave_loop(self) -> None:
        """As `Store.leave_loop`."""
        self.ends.append("loop")

    async def aclose(self) -> None:
        """As `Store.aclose`."""
        self.ends.append("all")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs only while a test lets it."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def session(loop: asyncio.AbstractEventLoop) -> Iterator[Session]:
    """A connection whose watchdogs end with the test."""
    session = Session("AsyncLocks", SpiedTaskStore(), "", 30.0, closing.loop_ends)
    yield session
    for watchdog in session.watchdogs.values():
        watchdog.stop()
    session.watchdogs.clear()
    session.last_watchdog = None


@pytest.fixture
def store(session: Session) -> SpiedTaskStore:
    """The store of the connection."""
    found: Any = session.store
    return found


@pytest.fixture
def do(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """What runs a coroutine on the loop."""
    return loop.run_until_complete


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which closing waits."""
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.sleep(seconds)

    monkeypatch.setattr(closing, "time", clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return clock


async def hold(session: Session, name: str) -> AsyncGrant:
    """Acquire a lock on the running loop."""
    grant = await session.acquire(LockSpec(f"\0{name}", ttl=30.0), AcquireOptions(), 0, "ann")
    assert grant is not None
    return grant


async def several(session: Session, names: str) -> list[AsyncGrant]:
    """Acquire a lock for each letter."""
    return [await hold(session, name) for name in names]


def watched(loop: Any, runs: bool, entries: list[Any] | None = None) -> Any:
    """Return a watchdog of another loop, which notes that it is stopped."""
    stopped: list[bool] = []
    return SimpleNamespace(
        loop=loop, runs=runs, entries=entries or [], stopped=stopped, stop=lambda: stopped.append(True)
    )


# -- who waits gives up -------------------------------------------------------------------------------------


def test_who_can_not_give_up_is_waited_for_two_seconds_and_then_taken_out_of_the_line(
    session: Session, store: SpiedTaskStore, clock: Clock, do: Any
) -> None:
    calls = [enters(session, "first", RUNS), enters(session, "second", ENDED)]
    store.failing["first"] = away()
    do(closing.withdraw(session))
    assert [call.closed for call in calls] == [True, True]
    assert clock.pauses[:7] == pytest.approx([0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.01])
    assert set(clock.pauses[6:]) == {0.01}
    assert sum(clock.pauses) == pytest.approx(2.0, abs=0.011)
    assert store.left == ["first", "second"], "also after a failure"
    assert session.entering == {}


@pytest.mark.parametrize("where", ["entering", "leaving"])
@pytest.mark.parametrize("last", [False, True])
def test_one_who_gives_up_in_time_is_waited_for_until_then(
    session: Session, store: SpiedTaskStore, clock: Clock, do: Any, where: str, last: bool
) -> None:
    for number, its in enumerate([ENDED, RUNS, ENDED][: 2 if last else 3]):
        if where == "entering":
            enters(session, str(number), its)
        else:
            session.leaving[str(number)] = its, claim(str(number))
    place: dict[str, Any] = getattr(session, where)
    clock.meanwhile = lambda: place.pop("1") if len(clock.pauses) == 3 else None
    do(closing.withdraw(session))
    assert len(clock.pauses) == 3
    assert "1" not in store.left


def test_who_enters_while_nobody_leaves_is_waited_for(session: Session, clock: Clock, do: Any) -> None:
    enters(session, "a", RUNS)
    session.leaving = {"b": (ENDED, claim("b"))}
    clock.meanwhile = session.entering.clear
    do(closing.withdraw(session))
    assert len(clock.pauses) == 1


# -- close() ------------------------------------------------------------------------------------------------


def test_closing_releases_the_last_one_first_whatever_fails_and_tells_the_first_failure(
    session: Session, store: SpiedTaskStore, do: Any
) -> None:
    first, second, third = do(several(session, "abc"))
    store.failing = {third.id: away(), second.id: StoreError("another")}
    stays = {second.id, third.id}
    told: list[str] = []
    session.listeners[lambda event: told.append(f"{event.kind} {event.name}")] = None
    (watchdog,) = session.watchdogs.values()
    session.watchdogs[ENDED] = other = watched(ENDED, False)
    with pytest.raises(StoreError, match="the store is away"):
        do(closing.begin(session))
    assert store.left == [third.id, second.id, first.id]
    assert told == ["released a"]
    assert {entry.claim.id for entry in watchdog.entries} == stays
    assert (session.closed, session.ended, store.ends) == (True, True, ["all"])
    assert (watchdog._stopped, other.stopped) == (True, [True])
    assert (session.watchdogs, session.last_watchdog) == ({}, None)
    do(closing.begin(session))
    assert (len(store.left), store.ends) == (3, ["all"]), "it has ended"


@pytest.mark.parametrize("here", [False, True])
def test_what_is_held_on_another_loop_and_what_was_dropped_leaves_the_line(
    session: Session, store: SpiedTaskStore, do: Any, here: bool
) -> None:
    kept, dropped = do(several(session, "ab"))
    dropped._leaving = True  # a release that failed: who drops it then is not warned
    watchdog = dropped._watchdog
    watchdog.add(dropped)
    ids = {kept.id, dropped.id}
    del dropped
    if not here:
        watchdog.loop = SimpleNamespace(is_running=lambda: True, is_closed=lambda: True)
    assert do(closing._release(session, watchdog)) is None
    assert set(store.left) == ids
    assert (kept._state, watchdog.entries) == ("released", [])


@pytest.mark.parametrize(
    ("again", "gone", "state"), [(False, False, "released"), (True, True, "released"), (False, True, "lost")]
)
def test_what_another_loop_holds_was_released_unless_it_was_gone_before(
    session: Session, store: SpiedTaskStore, do: Any, again: bool, gone: bool, state: str
) -> None:
    grant = do(hold(session, "a"))
    grant._leaving = again
    if gone:
        do(arun(store.evict("\0a", None)))
    seen: list[bool] = []
    store.meanwhile = lambda claim: seen.append(grant._leaving)
    (entry,) = grant._watchdog.entries
    do(closing._leave(session, entry))
    assert (grant._state, seen) == (state, [True]), "from the moment when it is asked, it is not held"


def test_the_watchdog_of_a_loop_that_runs_is_stopped_there(
    session: Session, loop: asyncio.AbstractEventLoop, do: Any
) -> None:
    there = Loop(True)
    runs, over, mine = watched(there, True), watched(there, False), watched(loop, True)
    session.watchdogs = {RUNS: runs, ENDED: over, loop: mine}
    do(closing._end(session))
    assert there.asked == [runs.stop]
    assert [each.stopped for each in (runs, over, mine)] == [[], [True], [True]]


def test_two_that_close_wait_for_the_same_end(session: Session, store: SpiedTaskStore, do: Any) -> None:
    async def both() -> None:
        grant = await hold(session, "a")
        await asyncio.gather(closing.begin(session), closing.begin(session))
        assert (grant.held, store.left, store.ends) == (False, [grant.id], ["all"])

    do(both())


def test_a_close_that_another_loop_has_begun_is_left_to_it(session: Session, store: SpiedTaskStore, do: Any) -> None:
    begun: Any = SimpleNamespace(done=lambda: False, get_loop=lambda: SimpleNamespace(is_closed=lambda: False))
    session.closing = begun
    do(closing.begin(session))
    assert (session.closing, store.ends) == (begun, [])
    session.closing = SimpleNamespace(done=lambda: True, get_loop=lambda: RUNS)  # type: ignore[assignment]
    do(closing.begin(session))
    assert store.ends == ["all"], "it came to nothing there"


def test_a_close_that_a_closed_loop_has_begun_is_begun_again(
    session: Session, store: SpiedTaskStore, do: Any
) -> None:
    grant = do(hold(session, "a"))
    begun: Any = SimpleNamespace(done=lambda: False, get_loop=lambda: SimpleNamespace(is_closed=lambda: True))
    session.closing = begun
    do(closing.begin(session))
    assert (session.ended, store.left, store.ends) == (True, [grant.id], ["all"])


def test_a_release_that_an_ended_loop_has_begun_is_done_by_who_closes(
    session: Session, store: SpiedTaskStore, do: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session.leaving = {id: (ENDED, claim(id)) for id in "ab"}
    store.failing = {"a": away()}
    do(closing.begin(session))
    assert (store.left, store.ends, session.leaving) == (["a", "b"], ["all"], {})
    assert "the store is away" in caplog.text


def test_an_interrupt_while_others_give_up_still_releases_and_closes(
    session: Session, store: SpiedTaskStore, do: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = do(hold(session, "a"))

    async def interrupted(session: Session) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(closing, "withdraw", interrupted)
    with pytest.raises(asyncio.CancelledError):
        do(closing.close(session))
    assert (grant.held, store.ends) == (False, ["all"])


# -- the end of a loop --------------------------------------------------------------------------------------


def test_a_loop_that_ends_releases_what_is_its_own(
    session: Session,
    store: SpiedTaskStore,
    loop: asyncio.AbstractEventLoop,
    do: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grant = do(hold(session, "a"))
    ((loop, watchdog),) = session.watchdogs.items()
    enters(session, "its", loop)
    enters(session, "other", RUNS)
    do(closing.loop_ends(session, watchdog))
    assert store.left == ["its", grant.id]
    assert list(session.entering) == ["other"]
    assert (store.ends, watchdog._stopped, session.watchdogs) == (["loop"], True, {})
    assert (grant.held, caplog.messages) == (False, [])


@pytest.mark.parametrize("why", ["closed", "another loop"])
def test_nothing_is_done_for_a_loop_when_it_is_not_its_end(
    session: Session, store: SpiedTaskStore, loop: asyncio.AbstractEventLoop, do: Any, why: str
) -> None:
    grant = do(hold(session, "a"))
    watchdog = session.watchdogs[loop]
    if why == "closed":
        session.ended = True
    else:
        watchdog = watched(RUNS, True)
    do(closing.loop_ends(session, watchdog))
    assert (store.left, store.ends, grant.held, len(session.watchdogs)) == ([], [], True, 1)


@pytest.mark.parametrize("fails", ["its", "a"])
def test_a_loop_that_ends_without_its_store_says_so_and_ends(
    session: Session,
    store: SpiedTaskStore,
    loop: asyncio.AbstractEventLoop,
    do: Any,
    caplog: pytest.LogCaptureFixture,
    fails: str,
) -> None:
    grant = do(hold(session, "a"))
    enters(session, "its", loop)
    store.failing = {grant.id if fails == "a" else fails: away()}
    watchdog = session.watchdogs[loop]
    do(closing.loop_ends(session, watchdog))
    assert "could not release at the end of an event loop" in caplog.messages[-1]
    assert "the store is away" in caplog.messages[-1]
    assert (set(store.left), store.ends) == ({grant.id, "its"}, ["loop"]), "what can be done is done"
    assert (watchdog._stopped, session.watchdogs) == (True, {})


def test_the_end_of_a_loop_and_of_the_interpreter_take_a_second_at_most(
    session: Session,
    store: SpiedTaskStore,
    loop: asyncio.AbstractEventLoop,
    do: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits: list[float | None] = []
    timeout = asyncio.timeout

    def at_once(seconds: float | None) -> Any:
        limits.append(seconds)
        return timeout(0)

    async def hangs() -> None:
        await asyncio.Event().wait()

    do(hold(session, "a"))
    watchdog = session.watchdogs[loop]
    monkeypatch.setattr(asyncio, "timeout", at_once)
    monkeypatch.setattr(store, "leave_loop", hangs)
    monkeypatch.setattr(store, "aclose", hangs)
    do(closing.loop_ends(session, watchdog))
    assert (limits, watchdog._stopped) == ([1.0], True)
    closing._release_after_the_end(session, [], [], close=True)
    assert limits == [1.0, 1.0]
    assert caplog.messages[0].endswith("the leases will end: TimeoutError")
    assert caplog.messages[1:] == ["could not release at exit: TimeoutError"]


# -- the exit of the interpreter ----------------------------------------------------------------------------


def test_the_exit_closes_the_store_when_nothing_is_held(session: Session, store: SpiedTaskStore) -> None:
    closing.at_exit(session)
    assert (store.closed_by, store.ends) == ([threading.current_thread()], [])


def test_the_exit_releases_what_loops_that_ended_hold_and_takes_out_who_waited_there(
    session: Session, store: SpiedTaskStore, do: Any, caplog: pytest.LogCaptureFixture
) -> None:
    grants = do(several(session, "ab"))
    enters(session, "waits", ENDED)
    session.leaving["leaves"] = ENDED, claim("leaves")
    closing.at_exit(session)
    assert set(store.left) == {"waits", "leaves", *(grant.id for grant in grants)}
    assert [grant.held for grant in grants] == [False, False]
    assert [watchdog.entries for watchdog in session.watchdogs.values()] == [[]]
    assert (store.ends, store.closed_by, caplog.messages) == (["all"], [], [])


def test_the_exit_takes_who_waits_out_of_the_line_even_if_nothing_is_held(
    session: Session, store: SpiedTaskStore
) -> None:
    enters(session, "waits", ENDED)
    closing.at_exit(session)
    assert (store.left, store.ends, store.closed_by) == (["waits"], ["all"], [])


@pytest.mark.parametrize("number", [1, 3, 4])
def test_what_a_loop_that_still_runs_holds_stays_and_is_named(
    session: Session, store: SpiedTaskStore, do: Any, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    grants = do(several(session, "abcd"[:number]))
    (watchdog,) = session.watchdogs.values()
    its, watchdog.loop = watchdog.loop, RUNS
    enters(session, "waits", ENDED)
    closing.at_exit(session)
    watchdog.loop = its
    assert store.left == ["waits"]
    assert [grant.held for grant in grants] == [True] * number
    assert (store.ends, store.closed_by) == ([], []), "somebody still uses it"
    names = ", ".join(repr(name) for name in "abcd"[: min(number, 3)]) + (", ..." if number > 3 else "")
    assert caplog.messages[0].startswith(
        f"{number} lock(s) of aconnect() were still held at exit ({names}) and stay until their leases end"
    )


def test_what_ended_loops_hold_is_released_beside_what_stays(
    session: Session, store: SpiedTaskStore, do: Any, caplog: pytest.LogCaptureFixture
) -> None:
    grant, other = do(hold(session, "a")), do(hold(session, "b"))
    (entry, its) = session.watchdogs[other._watchdog.loop].entries
    session.watchdogs[RUNS] = watched(RUNS, True, [its])
    grant._watchdog.forget(its)
    closing.at_exit(session)
    assert entry.grant is grant
    assert store.left == [grant.id]
    assert (store.ends, store.closed_by) == ([], [])
    assert caplog.messages[0].startswith("1 lock(s)")


def test_where_claims_end_with_the_process_the_exit_leaves_them_to_that(
    session: Session,
    store: SpiedTaskStore,
    do: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "frees_at_death", True, raising=False)
    grant = do(hold(session, "a"))
    closing.at_exit(session)
    assert (grant.held, store.left, store.ends, store.closed_by, caplog.messages) == (True, [], [], [], [])


def test_an_exit_without_its_store_says_what_stays(
    session: Session, store: SpiedTaskStore, do: Any, caplog: pytest.LogCaptureFixture
) -> None:
    grants = do(several(session, "abc"))
    store.failing = {grants[1].id: away()}
    closing.at_exit(session)
    assert [entry.grant for watchdog in session.watchdogs.values() for entry in watchdog.entries] == [grants[1]]
    assert caplog.messages[0] == "could not release at exit: the store is away"
    assert caplog.messages[1].startswith("1 lock(s)")
    assert store.ends == []


@pytest.mark.parametrize("gives_up", [True, False])
def test_the_exit_waits_a_second_for_who_gives_up_on_a_loop_that_runs(
    session: Session, store: SpiedTaskStore, clock: Clock, gives_up: bool
) -> None:
    there, over = enters(session, "there", RUNS), enters(session, "over", ENDED)
    if gives_up:
        clock.meanwhile = lambda: session.entering.pop("there") if len(clock.pauses) == 3 else None
    closing.at_exit(session)
    assert (there.closed, over.closed) == (True, False)
    assert set(clock.pauses) == {0.01}
    assert sum(clock.pauses) == pytest.approx(0.03 if gives_up else 1.0, abs=0.011)
    assert store.left == ["over"]
    assert list(session.entering) == (["over"] if gives_up else ["there", "over"])


def test_the_last_loop_resolves_names_without_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = closing.LastLoop()
    monkeypatch.setattr(loop, "run_in_executor", None)
    try:
        ((*_, address),) = loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80, proto=6))
    finally:
        loop.close()
    assert address == ("127.0.0.1", 80)


def test_the_exit_ends_every_connection_that_is_not_closed_whatever_happens_to_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [SpiedTaskStore(), SpiedTaskStore(), SpiedTaskStore()]
    sessions = [Session("AsyncLocks", store, "", 30.0, closing.loop_ends) for store in stores]

    def fails() -> None:
        raise OSError("broken")

    stores[0].close = fails  # type: ignore[method-assign]
    sessions[1].ended = True
    monkeypatch.setattr(closing, "open_sessions", sessions)
    closing._at_exit()
    assert [session.closed for session in sessions] == [True, False, True]
    assert [len(store.closed_by) for store in stores] == [0, 0, 1]
    assert caplog.messages == ["could not close at exit: broken"]
