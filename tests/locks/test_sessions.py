"""One call of acquire, of threads and of tasks: what it asks for, and that nothing stays behind however it ends."""

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.acquire import AcquireCall, Held
from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import StoreError
from interlock.core.queue import GONE, EnterResult
from interlock.locks.aio import session as of_tasks
from interlock.locks.events import Event
from interlock.locks.session import AcquireOptions
from interlock.locks.sync import session as of_threads
from interlock.locks.sync.grants import Grant
from interlock.runtime.sync import run
from interlock.testing.waiting import eventually
from tests.support.spied_store import SpiedStore, away

NOW = 1e9
SPEC = LockSpec("\0door", ttl=30.0)
USING = EnterResult("using", 7)
WAITS = EnterResult("pending", 0, 1.0)


async def nothing(*_: object) -> None:
    """Take the end of a loop."""


class Colour:
    """A connection of threads or of tasks, with what it was asked and what it told.

    Attributes:
        entered: what `enter_now` was called with, after the claim.
        calls: of `acquire` for those who wait.
        answer: what that returns, or raises.
    """

    def __init__(self, tasks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks = tasks
        self.module: Any = of_tasks if tasks else of_threads
        self.store = SpiedStore()
        self.loop = asyncio.new_event_loop()
        if tasks:
            self.session: Any = of_tasks.Session("AsyncLocks", self.store, "", 30.0, nothing)
        else:
            self.session = of_threads.Session("Locks", self.store, "", 30.0, Grant)
        self.entered: list[tuple[Any, ...]] = []
        self.result: EnterResult | BaseException = USING
        self.calls: list[AcquireCall] = []
        self.answer: Any = None
        self.meanwhile: Callable[[Any], object] = lambda call: None
        self.told: list[str] = []
        self.now = NOW
        self.session.look_at_log = math.inf
        self.session.enter_now = self._enter_now
        monkeypatch.setattr(self.module, "acquire", self._acquire)
        monkeypatch.setattr(self.module, "monotonic", lambda: self.now)

    def _enter_now(self, claim: Claim, *how: Any) -> EnterResult:
        self.entered.append(how)
        assert list(self.session.entering) == [claim.id], "whoever closes must find it"
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def _acquire(self, store: Any, call: AcquireCall) -> Any:
        self.calls.append(call)
        assert self.session.entering[call.claim.id] is call
        self.meanwhile(call)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(call) if callable(self.answer) else self.answer
        yield

    def listen(self) -> None:
        """Note what is told from now on."""

        def told(event: Event) -> None:
            self.told.append(event.kind)

        self.session.listeners[told] = None

    def acquire(self, seconds: float | None = None, **options: Any) -> Any:
        """Acquire the door."""
        how = SPEC, AcquireOptions(**options), seconds, "ann"
        if self.tasks:
            return self.loop.run_until_complete(self.session.acquire(*how))
        return self.session.acquire(*how, threading.main_thread())

    @property
    def watched(self) -> list[Any]:
        """What is under watch."""
        if self.tasks:
            return [each for watchdog in self.session.watchdogs.values() for each in watchdog.grants]
        grants: list[Any] = self.session.watchdog.grants
        return grants

    def close(self) -> None:
        """End what the test began."""
        for watchdog in self.session.watchdogs.values() if self.tasks else [self.session.watchdog]:
            watchdog.stop()
        self.loop.close()


@pytest.fixture(params=["threads", "tasks"])
def colour(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Colour]:
    """Both colours."""
    colour = Colour(request.param == "tasks", monkeypatch)
    yield colour
    colour.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Colour]:
    """A connection of threads."""
    colour = Colour(False, monkeypatch)
    yield colour
    colour.close()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Colour]:
    """A connection of tasks."""
    colour = Colour(True, monkeypatch)
    yield colour
    colour.close()


@pytest.mark.parametrize(
    ("seconds", "waits", "deadline"), [(0, False, NOW + 1.0), (5.0, True, NOW + 5.0), (None, True, None)]
)
def test_who_waits_does_so_until_its_deadline_and_one_try_has_a_second(
    colour: Colour, seconds: float | None, waits: bool, deadline: float | None
) -> None:
    colour.result = WAITS
    assert colour.acquire(seconds) is None
    assert colour.entered == [(None, waits, False)]
    (call,) = colour.calls
    assert (call.started, call.deadline, call.wait, call.first) == (NOW, deadline, waits, WAITS)
    assert call.owner is (colour.loop if colour.tasks else threading.main_thread())
    assert call.on_queued is None, "nobody listens"
    assert (call.claim.who, call.claim.spec) == ("ann", SPEC)
    assert colour.session.entering == {}


def test_what_was_free_is_held_for_its_ttl_from_when_it_was_asked_for(colour: Colour) -> None:
    lost: list[Any] = []
    grant = colour.acquire(renew=False, on_lost=lost.append)
    assert (grant.fence, grant._deadline, grant._renews, grant._session) == (7, NOW + 30.0, False, colour.session)
    assert grant._on_lost == lost.append
    assert grant._owner is (None if colour.tasks else threading.main_thread())
    assert colour.calls == []
    assert colour.watched == [grant]
    assert colour.session.entering == {}
    assert grant._acquired_at is None, "nobody listens"
    if colour.tasks:
        assert (grant._body, grant._struck, colour.session.ended) == (None, False, False)


@pytest.mark.parametrize(("late", "waits"), [(29.9, False), (30.0, True), (30.1, True)])
def test_an_answer_after_the_lease_is_no_grant(colour: Colour, late: float, waits: bool) -> None:
    enters = colour.session.enter_now

    def enter_now(*asked: Any) -> EnterResult:
        answer: EnterResult = enters(*asked)
        colour.now += late
        return answer

    colour.session.enter_now = enter_now
    grant = colour.acquire()
    assert (len(colour.calls), grant is None) == ((1, True) if waits else (0, False))


@pytest.mark.parametrize("state", ["pending", "waits"])
def test_only_who_is_told_that_it_holds_the_lock_does(colour: Colour, state: Any) -> None:
    colour.result = EnterResult(state, 7)
    assert colour.acquire() is None
    assert len(colour.calls) == 1


def test_who_had_to_wait_holds_what_the_wait_brought_and_all_is_told(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()
    colour.meanwhile = lambda call: call.on_queued(call)
    colour.answer = lambda call: Held(call.claim, 9, NOW + 12.0)
    grant = colour.acquire()
    assert (grant.fence, grant._deadline) == (9, NOW + 12.0)
    assert colour.told == ["queued", "acquired"]


def test_who_lined_up_again_and_gave_up_tells_it_of_each_claim(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()

    def goes_on(call: AcquireCall) -> None:
        assert call.on_queued is not None
        call.on_queued(call)
        call.claim = call.claim._replace(id="another")

    colour.meanwhile = goes_on
    assert colour.acquire(1.0) is None
    assert colour.told == ["queued", "withdrawn", "timed out"]
    assert colour.session.entering == {}


def test_who_did_not_wait_has_left_no_line(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()
    colour.session.left_line = None
    assert colour.acquire(1.0) is None
    assert colour.told == ["timed out"]


@pytest.mark.parametrize(("look_at", "looks"), [(NOW - 0.1, 1), (NOW, 0), (NOW + 0.1, 0)])
def test_the_log_is_looked_at_when_its_time_has_come(colour: Colour, look_at: float, looks: int) -> None:
    seen: list[float] = []
    colour.session.look_at_log = look_at
    colour.session.listen_for_log = seen.append
    colour.acquire()
    assert seen == [NOW] * looks


def test_a_closed_connection_is_not_asked(colour: Colour) -> None:
    colour.session.closed = True
    with pytest.raises(StoreError, match="this connection was closed"):
        colour.acquire()
    assert (colour.entered, colour.session.entering, colour.store.left) == ([], {}, [])


def test_what_is_obtained_while_the_connection_is_closed_is_given_back(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()

    def granted(call: AcquireCall) -> Held:
        call.entered = colour.session.closed = True
        return Held(call.claim, 9, NOW + 12.0)

    colour.answer = granted
    with pytest.raises(StoreError, match="was closed while 'door' was acquired"):
        colour.acquire()
    assert (colour.watched, colour.session.entering, colour.told) == ([], {}, [])
    assert colour.store.left == [colour.calls[0].claim.id]


def test_what_whoever_closed_has_taken_out_of_the_line_is_not_held(threads: Colour) -> None:
    threads.listen()
    kept: list[Any] = []
    add = threads.session.watchdog.add

    def closes(grant: Any) -> None:
        add(grant)
        kept.append(grant)
        threads.session.entering.clear()

    threads.session.watchdog.add = closes
    with pytest.raises(StoreError, match="was closed while 'door' was acquired"):
        threads.acquire()
    assert (threads.watched, threads.store.left, threads.told) == ([], [kept[0].id], ["acquired", "released"])
    assert not kept[0].held


@pytest.mark.parametrize("error", [away(), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("entered", [False, True])
def test_a_wait_that_is_broken_off_leaves_the_line_it_is_in(
    colour: Colour, error: BaseException, entered: bool
) -> None:
    if colour.tasks and isinstance(error, KeyboardInterrupt):
        error = SystemExit()  # a loop lets both through at once
    colour.result = GONE if not entered else WAITS
    colour.listen()

    def broken(call: AcquireCall) -> None:
        assert call.on_queued is not None
        call.on_queued(call)
        call.claim = call.claim._replace(id="the next")
        colour.session.entering["the next"] = call

    colour.meanwhile = broken
    colour.answer = error
    with pytest.raises(type(error)):
        colour.acquire()
    assert colour.store.left == (["the next"] if colour.calls[0].entered else [])
    assert colour.told == ["queued", "withdrawn"]
    assert list(colour.session.entering) == ["the next"], "its own id is gone"


def test_a_first_step_that_is_broken_off_may_have_entered(colour: Colour) -> None:
    colour.result = away()
    with pytest.raises(StoreError):
        colour.acquire()
    assert len(colour.store.left) == 1
    assert (colour.session.entering, colour.calls) == ({}, [])


@pytest.mark.parametrize("closed", [False, True])
def test_who_can_not_leave_says_so_unless_who_closed_has_done_it(
    colour: Colour, closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    colour.result = OSError("broken")
    leaves = colour.store.leave

    def leave(claim: Claim) -> Any:
        colour.store.failing[claim.id] = away()
        if closed:
            colour.session.entering.clear()
        return leaves(claim)

    colour.store.leave = leave  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broken"):
        colour.acquire()
    assert len(caplog.messages) == (0 if closed else 1)
    assert all("could not take a claim out of the line" in each for each in caplog.messages)
    assert colour.session.entering == {}


def test_a_forked_child_begins_with_nothing(colour: Colour, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = colour.acquire()
    colour.session.entering["a"] = colour.session.leaving["b"] = "somebody"
    monkeypatch.setattr(colour.module, "open_sessions", [colour.session])
    before = dict(colour.session.watchdogs) if colour.tasks else {0: colour.session.watchdog}
    colour.module._after_fork()
    assert (colour.watched, colour.session.entering, colour.session.leaving) == ([], {}, {})
    assert grant.id
    for each in before.values():
        each.stop()


# -- threads ------------------------------------------------------------------------------------------------


def test_who_closed_before_a_fork_has_closed_in_the_child(threads: Colour) -> None:
    assert threads.session.closing.acquire(blocking=False)
    threads.session.start_afresh()
    assert threads.session.closing.acquire(blocking=False)
    threads.session.closed = True
    threads.session.start_afresh()
    assert not threads.session.closing.acquire(blocking=False)


def test_a_store_without_a_fast_path_is_waited_for_by_threads(threads: Colour) -> None:
    threads.session.enter_now = None
    threads.answer = lambda call: Held(call.claim, 9, NOW + 12.0)
    assert threads.acquire().fence == 9
    assert threads.calls[0].first is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_claim_that_leaves_is_known_to_whoever_closes(threads: Colour, fails: bool) -> None:
    claim = Claim("a", SPEC)
    seen: list[Any] = []
    threads.store.meanwhile = lambda claim: seen.append(dict(threads.session.leaving))
    if fails:
        threads.store.failing["a"] = away()
        with pytest.raises(StoreError):
            threads.session.leave(claim)
    else:
        assert threads.session.leave(claim) is False
    assert seen == [{"a": threading.current_thread()}]
    assert threads.session.leaving == {}


def test_what_the_program_is_told_runs_beside_in_a_thread_that_no_exit_waits_for(
    threads: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, bool]] = []

    def told(*_: object) -> None:
        thread = threading.current_thread()
        seen.append((thread.name, thread.daemon))
        raise SystemExit

    quiet, grant = threads.acquire(), threads.acquire(on_lost=told)
    of_threads._tell_lost(quiet)
    of_threads._tell_lost(grant)
    eventually(lambda: caplog.messages)
    assert seen == [("interlock-on-lost", True)]
    assert "on_lost of <Grant 'door'" in caplog.messages[0]
    of_threads._call_on_lost(quiet)
    assert len(caplog.messages) == 1
    threads.session.listeners[lambda event: seen.append((event.reason, threading.current_thread().daemon))] = None
    of_threads._tell([grant, quiet], "renewed", "why")
    eventually(lambda: len(seen) == 3)
    assert seen[1:] == [("why", True)] * 2


def test_where_no_thread_can_be_started_nobody_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(of_threads, "threading", SimpleNamespace(Thread=Refused))
    of_threads._beside("interlock-events", print)
    assert caplog.messages == ["no thread could be started to call events: can't start new thread"]


# -- tasks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("next", "fast", "gives_way"), [(NOW, True, 1), (NOW - 1, True, 1), (NOW + 1, True, 0), (NOW - 1, False, 0)]
)
def test_a_task_gives_way_where_nothing_else_would_wait(
    tasks: Colour, monkeypatch: pytest.MonkeyPatch, next: float, fast: bool, gives_way: int
) -> None:
    ways: list[int] = []

    async def give_way() -> None:
        ways.append(1)
        tasks.now = NOW + 2.0

    monkeypatch.setattr(of_tasks, "turns", SimpleNamespace(next=next))
    monkeypatch.setattr(of_tasks, "give_way", give_way)
    if not fast:
        tasks.session.enter_now = None
        tasks.answer = lambda call: Held(call.claim, 9, NOW + 30.0)
    grant = tasks.acquire()
    assert len(ways) == gives_way
    assert grant._deadline == NOW + 30.0 + 2.0 * gives_way, "the lease counts from when it was asked for"


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("seconds", "waits"), [(0, False), (1.0, True)])
def test_a_store_for_tasks_answers_at_once_or_is_awaited(
    tasks: Colour, at_once: bool, seconds: float, waits: bool
) -> None:
    asked: list[bool] = []

    async def later() -> EnterResult:
        return USING

    def enter_now(claim: Claim, wait: bool) -> Any:
        asked.append(wait)
        return USING if at_once else later()

    tasks.session.enter_now, tasks.session.aenter_now = None, enter_now
    assert tasks.acquire(seconds).fence == 7
    assert (asked, tasks.calls) == ([waits], [])


@pytest.mark.parametrize("how", ["left", "busy", "away", "slow"])
def test_a_task_that_is_destroyed_leaves_at_once_or_its_claim_stays_known(tasks: Colour, how: str) -> None:
    left: list[str] = []

    def leave_now(claim: Claim) -> bool | None:
        left.append(claim.id)
        if how == "away":
            raise away()
        return None if how == "busy" else False

    tasks.session.enter_now = None
    tasks.session.aenter_now = lambda claim, wait: asyncio.sleep(30)
    tasks.session.leave_now = None if how == "slow" else leave_now

    async def destroyed() -> None:
        coroutine = tasks.session.acquire(SPEC, AcquireOptions(), None, "ann")
        coroutine.send(None)
        coroutine.close()

    tasks.loop.run_until_complete(destroyed())
    assert len(left) == (how != "slow")
    assert len(tasks.session.entering) == (how != "left")
    assert tasks.store.left == []


def test_a_task_that_is_destroyed_in_line_leaves_with_the_claim_it_has_by_then(tasks: Colour) -> None:
    left: list[str] = []
    tasks.result = WAITS
    tasks.listen()
    tasks.session.leave_now = lambda claim: left.append(claim.id) or True

    def goes_on(call: AcquireCall) -> None:
        assert call.on_queued is not None
        call.on_queued(call)
        call.claim = call.claim._replace(id="the next")

    tasks.meanwhile = goes_on
    tasks.answer = GeneratorExit()
    with pytest.raises(GeneratorExit):
        tasks.acquire()
    assert left == ["the next"]
    assert tasks.told == ["queued", "withdrawn"]


def test_each_loop_has_its_watchdog_and_those_of_loops_that_are_over_are_forgotten(tasks: Colour) -> None:
    session = tasks.session

    async def watchdog() -> Any:
        return session.watchdog()

    other = asyncio.new_event_loop()
    first, second = tasks.loop.run_until_complete(watchdog()), other.run_until_complete(watchdog())
    assert first is not second
    assert tasks.loop.run_until_complete(watchdog()) is first
    assert session.last_watchdog is first
    assert session.watchdogs == {tasks.loop: first, other: second}
    grant = tasks.acquire()
    tasks.loop.run_until_complete(tasks.loop.shutdown_asyncgens())
    first.stop()
    tasks.loop.close()
    third = asyncio.new_event_loop()
    its = third.run_until_complete(watchdog())
    assert session.watchdogs == {tasks.loop: first, other: second, third: its}, "somebody holds a lock there"
    first.remove(grant)
    tasks.loop = asyncio.new_event_loop()
    last = tasks.loop.run_until_complete(watchdog())
    assert session.watchdogs == {other: second, third: its, tasks.loop: last}
    for loop in (other, third):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_a_doubt_goes_to_all_loops_that_run(tasks: Colour) -> None:
    doubted: list[str] = []
    asked: list[tuple[Any, str]] = []

    def its(name: str, runs: bool) -> tuple[Any, Any]:
        class Other:
            def call_soon_threadsafe(self, *call: Any) -> None:
                asked.append(call)  # type: ignore[arg-type]

        return Other(), SimpleNamespace(doubt=lambda id: doubted.append(name + id), runs=runs)

    runs, over = its("runs", True), its("over", False)
    mine = SimpleNamespace(doubt=lambda id: doubted.append("mine" + id), runs=True, stop=lambda: None)
    tasks.session.watchdogs = {runs[0]: runs[1], over[0]: over[1], tasks.loop: mine}

    async def doubts() -> None:
        tasks.store.doubt("x")

    tasks.loop.run_until_complete(doubts())
    assert doubted == ["minex"]
    assert asked == [(runs[1].doubt, "x")]
    del tasks.session.watchdogs[tasks.loop]
    tasks.store.doubt("y")
    assert asked[1:] == [(runs[1].doubt, "y")]
    tasks.session.watchdogs = {}


def test_what_the_program_does_when_it_is_told_stops_nobody(tasks: Colour, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def fails(*_: object) -> None:
        told.append(1)
        raise SystemExit

    quiet, grant = tasks.acquire(), tasks.acquire(on_lost=fails)
    struck: list[Any] = []
    grant.__class__ = type("Spied", (type(grant),), {"__slots__": (), "_strike": lambda its: struck.append(its)})
    of_tasks._tell_lost(quiet)
    of_tasks._tell_lost(grant)
    assert (told, struck) == ([1], [grant]), "its body is cancelled first"
    assert "on_lost of" in caplog.messages[0]
    of_tasks._tell([SimpleNamespace(_tell=fails), SimpleNamespace(_tell=lambda *a: told.append(a))], "renewed", "w")  # type: ignore[list-item]
    assert told[1:] == [1, ("renewed", "w")]
    assert "a listener failed at the event" in caplog.messages[1]


def test_the_end_of_a_loop_is_told_to_who_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []

    async def ends(*about: Any) -> None:
        ended.append(about)

    session = of_tasks.Session("AsyncLocks", SpiedStore(), "", 30.0, ends)

    async def main() -> Any:
        return session.watchdog()

    watchdog = asyncio.run(main())
    assert ended == [(session, watchdog)]
    assert run(session.store.look("\0door")) == []
