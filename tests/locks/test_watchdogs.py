"""The watchdogs of threads and of tasks: when they look again, whom they wake, and what an error leaves undone."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import StoreError
from interlock.core.store import BaseStore
from interlock.locks.aio import watchdog as of_tasks
from interlock.locks.aio.watchdog import LoopWatchdog
from interlock.locks.grants import BaseGrant
from interlock.locks.leases import LONGEST_SLEEP
from interlock.locks.sync import watchdog as of_threads
from interlock.locks.sync.watchdog import Watchdog
from interlock.testing.waiting import eventually
from tests.support.spied_store import Clock, away

NOW = 1e9  # leases that end after it have not ended by the clock of this machine
TTL = 30.0
ALIVE: list[BaseGrant] = []


class Queue(BaseStore):
    """A store that answers as a test says.

    Attributes:
        answers: what a renewal answers, or raises.
        renewed: the ids that it was asked for, request by request.
        left: the ids that left.
        rested: called when it may rest.
    """

    def __init__(self) -> None:
        self.answers: Any = True
        self.renewed: list[list[str]] = []
        self.left: list[str] = []
        self.rested: Callable[[], object] = lambda: None

    def renew(self, claims: Sequence[Claim]) -> Any:
        """As `Queue.renew`."""
        self.renewed.append([claim.id for claim in claims])
        if isinstance(self.answers, BaseException):
            raise self.answers
        return [self.answers for _ in claims]
        yield

    def leave(self, claim: Claim) -> Any:
        """As `Queue.leave`; "a" can't leave."""
        self.left.append(claim.id)
        if claim.id == "a":
            raise away()
        return True
        yield

    def rest(self) -> None:
        """As `Store.rest`."""
        self.rested()


def grant(id: str, ends: float = TTL, renews: bool = True) -> BaseGrant:
    """Return a grant whose lease ends so many seconds from now."""
    made = BaseGrant((Claim(id, LockSpec(f"\0{id}", ttl=TTL)), 1, NOW + ends), renews, None)
    made._session, made._owner = SimpleNamespace(heard=False), id.upper()
    ALIVE.append(made)
    return made


@pytest.fixture(autouse=True)
def alive() -> Iterator[None]:
    """Grants live as long as their test: a watchdog holds them weakly."""
    yield
    ALIVE.clear()


def gives_back(given: list[str]) -> Callable[[BaseGrant], None]:
    """Return what releases grants and notes it; "a" can't be released."""

    def release(grant: BaseGrant) -> None:
        given.append(grant.id)
        if grant.id == "a":
            raise away()

    return release


@pytest.fixture
def queue() -> Queue:
    """The store."""
    return Queue()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of both watchdogs."""
    clock = Clock(NOW)
    monkeypatch.setattr(of_threads, "time", clock)
    monkeypatch.setattr(of_tasks, "time", clock)
    return clock


# -- threads ------------------------------------------------------------------------------------------------


class Renewers:
    """Takes the place of the threads that renew."""

    behind = False

    def __init__(self) -> None:
        self.due: list[list[str]] = []
        self.woken = 0

    def hand_over(self, due: Sequence[BaseGrant]) -> None:
        """As `Renewers.hand_over`."""
        self.due.append([each.id for each in due])

    def wake_all(self) -> None:
        """As `Renewers.wake_all`."""
        self.woken += 1


class Bell:
    """Takes the place of the lock that wakes the thread which keeps time.

    Attributes:
        rings: what the next waits find.
        waits: how long each wait was to be.
    """

    def __init__(self, *rings: bool) -> None:
        self.rings = list(rings)
        self.waits: list[float] = []
        self.free = False

    def acquire(self, timeout: float) -> bool:
        """As of every lock."""
        self.waits.append(timeout)
        return self.rings.pop(0)

    def locked(self) -> bool:
        """As of every lock."""
        return not self.free


class Started:
    """What would run in threads of their own."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.works: list[Callable[[], None]] = []
        self.alive = True

    def __call__(self, work: Callable[[], None], name: str) -> Any:
        self.names.append(name)
        self.works.append(work)
        return SimpleNamespace(is_alive=lambda: self.alive)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The threads that the watchdog starts."""
    started = Started()
    monkeypatch.setattr(of_threads, "started", started)
    return started


@pytest.fixture
def given() -> list[str]:
    """What the watchdog gave back."""
    return []


@pytest.fixture
def watchdog(queue: Queue, clock: Clock, started: Started, given: list[str]) -> Any:
    """A watchdog of threads without threads."""
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    watchdog: Any = Watchdog(queue, nothing, nothing, gives_back(given), None)  # type: ignore[arg-type]
    watchdog._renewers = Renewers()
    return watchdog


def rung(watchdog: Any) -> bool:
    """Tell whether the thread that keeps time was rung, and take it back."""
    return bool(watchdog._rung.acquire(blocking=False))


def test_a_grant_wakes_the_thread_only_if_it_is_due_before_the_next_look(watchdog: Any, started: Started) -> None:
    assert not rung(watchdog)
    watchdog.add(first := grant("a", 40.0))
    assert rung(watchdog)
    assert started.names == ["interlock-watchdog"]
    assert watchdog._alarm == first._due
    assert watchdog._interval == pytest.approx(20.0)
    watchdog._wakes_at = first._due
    watchdog.add(later := grant("b", 50.0))
    watchdog.add(same := grant("c", 40.0))
    assert not rung(watchdog)
    watchdog.add(over := grant("d", -100.0))
    assert rung(watchdog)
    assert watchdog._interval == 0.02
    assert len(started.names) == 1, "the thread lives"
    started.alive = False
    watchdog.add(last := grant("e", -100.0))
    assert len(started.names) == 2
    assert watchdog.grants == [first, later, same, over, last]


def test_who_acquired_a_claim_is_known_while_it_is_under_watch(watchdog: Any) -> None:
    watchdog.add(held := grant("a"))
    assert (watchdog.owner_of("a"), watchdog.owner_of("b")) == ("A", None)
    assert (watchdog.remove(held), watchdog.remove(held)) == (True, False)
    assert watchdog.owner_of("a") is None


def test_a_claim_that_stays_wakes_the_thread_only_if_it_leaves_before_the_next_look(watchdog: Any) -> None:
    staying, later = grant("a"), grant("b")
    staying._free_at = later._free_at = NOW + 5.0
    watchdog._wakes_at = NOW + 5.0
    watchdog.release_later(later)
    watchdog._wakes_at = NOW + 4.9
    watchdog.release_later(later)
    assert not rung(watchdog)
    watchdog._wakes_at = NOW + 5.1
    watchdog.release_later(staying)
    assert rung(watchdog)


def test_a_doubt_about_what_is_held_is_looked_at_now(watchdog: Any, queue: Queue) -> None:
    watchdog.add(grant("a"))
    rung(watchdog)
    assert watchdog.doubt("b") is False
    assert not rung(watchdog)
    assert watchdog.doubt("a") is True
    assert rung(watchdog)
    assert watchdog._alarm == 0.0
    watchdog._tell_and_renew()
    assert watchdog._renewers.due == [["a"]]


def test_a_watchdog_that_is_stopped_keeps_no_thread(watchdog: Any) -> None:
    assert watchdog._is_kept() is False
    watchdog._thread = threading.current_thread()
    assert watchdog._is_kept() is True
    watchdog.stop()
    watchdog.stop()
    assert rung(watchdog)
    assert watchdog._is_kept() is False


def test_one_look_hands_over_what_is_due_and_takes_out_what_has_stayed(
    watchdog: Any, clock: Clock, started: Started, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog._tell_and_renew()
    assert watchdog._renewers.due == []
    watchdog._renewers.behind = True
    watchdog._tell_and_renew()
    assert watchdog._renewers.due == [[]], "more threads may be needed by now"
    watchdog._renewers.behind = False
    for id in "ab":
        staying = grant(id)
        staying._free_at = NOW + 5.0
        watchdog.release_later(staying)
    watchdog.add(due := grant("c"))
    watchdog._ring()
    clock.now = due._due
    watchdog._wakes_at = 0.0
    watchdog._tell_and_renew()
    assert not rung(watchdog), "whoever rang was heard"
    assert watchdog._wakes_at == math.inf, "who comes now rings"
    assert watchdog._renewers.due == [[], ["c"]]
    assert started.names == ["interlock-watchdog", "interlock-at-least"]
    started.works[1]()
    assert queue.left == ["a", "b"], "also after a failure"
    assert "could not release 'a' after its `at_least`" in caplog.text


@pytest.mark.parametrize(
    ("due", "waits"), [(10.0, 10.0), (-100.0, 0.0), (9000.0, LONGEST_SLEEP)], ids=["in time", "late", "far"]
)
@pytest.mark.parametrize("rings", [True, False])
def test_the_thread_waits_until_the_next_look(watchdog: Any, due: float, waits: float, rings: bool) -> None:
    watchdog.add(grant("a", due + 20.0))
    watchdog._rung = Bell(rings)
    assert watchdog._rest() is True
    assert watchdog._rung.waits == [pytest.approx(waits)]


def test_with_nothing_to_watch_it_waits_ten_seconds_and_ends(watchdog: Any, queue: Queue) -> None:
    rested: list[int] = []
    queue.rested = lambda: rested.append(1)
    watchdog._rests = queue.rest
    watchdog._thread = "it"
    watchdog._rung = bell = Bell(True, False, False, False)
    assert watchdog._rest() is True
    assert (bell.waits, rested) == ([10.0], [])
    bell.free = True
    assert watchdog._rest() is True, "it was rung while it rested"
    bell.free, watchdog._stopped = False, True
    assert watchdog._rest() is True
    assert watchdog._thread == "it"
    watchdog._stopped = False
    assert watchdog._rest() is False
    assert (watchdog._thread, len(rested)) == (None, 3)


def test_while_grants_come_and_go_it_looks_at_intervals(watchdog: Any) -> None:
    assert watchdog._next_look(NOW) == math.inf
    watchdog.add(held := grant("a"))
    assert watchdog._next_look(NOW) == held._due == watchdog._alarm
    watchdog._alarm = NOW + 3.0
    assert watchdog._next_look(NOW) == NOW + 3.0
    watchdog.remove(held)
    watchdog._alarm = NOW
    assert watchdog._next_look(NOW) == math.inf, "nobody came since it looked last"
    watchdog.add(brief := grant("a"))
    watchdog.remove(brief)
    watchdog._alarm = NOW
    assert watchdog._next_look(NOW) == NOW + watchdog._interval == NOW + 10.0
    assert watchdog._next_look(NOW) == math.inf
    watchdog._renewers.behind = True
    assert watchdog._next_look(NOW) == NOW + 0.25
    watchdog._alarm = NOW + 0.1
    assert watchdog._next_look(NOW) == NOW + 0.1
    watchdog._renewers.behind = False
    watchdog._active = True
    watchdog.add(later := grant("b", 60.0))
    watchdog._alarm = NOW
    assert watchdog._next_look(NOW) == later._due, "what is known counts, not the interval"
    watchdog._alarm = NOW - 1.0
    assert watchdog._next_look(NOW) == later._due


@pytest.mark.parametrize("why", ["ended", "stopped", "error"])
def test_the_thread_that_keeps_time_is_started_again_after_an_error_only(
    watchdog: Any, started: Started, clock: Clock, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[int] = []

    def rest() -> bool:
        if why == "stopped":
            watchdog._stopped = len(looks) == 2
        elif why == "error" and len(looks) == 2:
            raise SystemExit
        return why != "ended" or len(looks) < 2

    watchdog._tell_and_renew = lambda: looks.append(1)
    watchdog._rest = rest
    watchdog._thread = before = SimpleNamespace(is_alive=lambda: True)
    watchdog._wakes_at = 0.0
    watchdog._keep_time()
    assert len(looks) == 2
    assert (watchdog._wakes_at, watchdog._renewers.woken) == (math.inf, 1)
    assert started.names == (["interlock-watchdog"] if why == "error" else [])
    assert (watchdog._thread is before) is (why != "error")
    assert clock.pauses == ([0.02] if why == "error" else [])
    assert rung(watchdog) is (why == "error")
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * (why == "error")


def test_a_watchdog_that_is_stopped_in_an_error_is_not_started_again(watchdog: Any, started: Started) -> None:
    def fails() -> None:
        watchdog._stopped = True
        raise OSError

    watchdog._tell_and_renew = fails
    watchdog._keep_time()
    assert started.names == []


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("error", [away(), SystemExit()])
def test_what_could_not_be_renewed_is_renewed_soon(
    watchdog: Any, queue: Queue, stopped: bool, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog.add(held := grant("b"))
    queue.answers, watchdog._stopped = error, stopped
    watchdog._renew_due([held])
    assert held._due == pytest.approx(NOW + (10.0 if stopped else 1.5))
    assert [each for each in caplog.messages if "unexpected" in each] == (
        [] if isinstance(error, StoreError) else ["unexpected error while renewing"]
    )


def test_a_grant_whose_block_was_left_is_given_back_and_who_ended_is_not_asked_for(
    watchdog: Any, queue: Queue, given: list[str], caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    grants = {id: grant(id) for id in "abcd"}
    for each in grants.values():
        watchdog.add(each)
    grants["a"]._block = grants["b"]._block = lambda: None
    watchdog.remove(grants["c"])
    clock.now = NOW + 12.0
    watchdog._renew(list(grants.values()))
    assert given == ["a", "b"], "also after a failure"
    assert "could not release 'a', whose `with` block was left" in caplog.text
    assert queue.renewed == [["d"]]
    assert grants["d"]._deadline == NOW + 42.0
    watchdog._renew([grants["c"]])
    assert len(queue.renewed) == 1


def test_a_lease_is_renewed_and_lost_by_real_threads(queue: Queue) -> None:
    lost: list[str] = []
    watchdog: Watchdog[BaseGrant] = Watchdog(
        queue,  # type: ignore[arg-type]
        lambda each: lost.append(each.id),
        lambda *_: None,
        lambda each: None,
        None,
    )
    try:
        watchdog.add(held := grant("b"))
        held._due = 0.0
        watchdog.doubt("b")
        eventually(lambda: queue.renewed)
        queue.answers = False
        watchdog.doubt("b")
        eventually(lambda: lost)
    finally:
        watchdog.stop()
    assert watchdog.grants == []


# -- tasks --------------------------------------------------------------------------------------------------


class Task:
    """Takes the place of a task.

    Attributes:
        error: that it ended with.
    """

    def __init__(self, cancel: Callable[[], object] = lambda: None, cancelled: bool = False) -> None:
        self.cancel = cancel
        self.done: list[Callable[[Any], None]] = []
        self.error: BaseException | None = None
        self._cancelled = cancelled

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """As of every task."""
        self.done.append(function)

    def cancelled(self) -> bool:
        """As of every task."""
        return self._cancelled

    def exception(self) -> BaseException | None:
        """As of every task."""
        return self.error


class Loop:
    """Takes the place of a loop: what is to run later is noted.

    Attributes:
        later: the delays, and what is called then.
        cancelled: the delays whose timers were cancelled.
        coroutines: that were to be tasks, with their names.
        tasks: the tasks.
    """

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.cancelled: list[float] = []
        self.coroutines: list[tuple[str, Any]] = []
        self.tasks: list[Task] = []
        self.closed = False

    def is_closed(self) -> bool:
        """As of every loop."""
        return self.closed

    def call_later(self, delay: float, function: Callable[[], None]) -> Any:
        """As of every loop."""
        self.later.append((delay, function))
        return SimpleNamespace(cancel=lambda: self.cancelled.append(delay))

    def create_task(self, coroutine: Any, name: str) -> Any:
        """As of every loop; the coroutine is run by the test."""
        self.coroutines.append((name, coroutine))
        self.tasks.append(task := Task())
        return task


@pytest.fixture
def keeper() -> Any:
    """The connection."""
    return SimpleNamespace(entering={})


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop that runs nothing."""
    loop = Loop()
    yield loop
    for _, coroutine in loop.coroutines:
        coroutine.close()


@pytest.fixture
def guard(queue: Queue, clock: Clock, loop: Loop, keeper: Any, given: list[str]) -> Iterator[Any]:
    """A watchdog of tasks."""
    release = gives_back(given)

    async def released(grant: BaseGrant) -> None:
        release(grant)

    async def made() -> Any:
        nothing: Callable[..., None] = lambda *_: None  # noqa: E731
        return LoopWatchdog(queue, nothing, nothing, released, keeper)  # type: ignore[arg-type]

    guard = asyncio.run(made())
    guard.loop = loop
    yield guard
    guard.stop()


def test_a_grant_moves_the_timer_only_if_it_is_due_before(guard: Any, loop: Loop) -> None:
    guard.add(first := grant("a", 60.0))
    guard.add(grant("b", 60.0))
    guard.add(grant("c", 70.0))
    assert [delay for delay, _ in loop.later] == [pytest.approx(40.0)]
    assert guard._wakes_at == first._due
    guard.add(grant("d", 30.0))
    assert [delay for delay, _ in loop.later[1:]] == [pytest.approx(10.0)]
    assert loop.cancelled == [pytest.approx(40.0)]
    assert guard in of_tasks._kept
    assert len(guard.grants) == len(guard.entries) == 4


@pytest.mark.parametrize(("moment", "delay"), [(-5.0, 0.0), (5.0, 5.0), (9000.0, LONGEST_SLEEP)])
def test_the_timer_is_set_for_the_moment_and_for_an_hour_at_most(
    guard: Any, loop: Loop, moment: float, delay: float
) -> None:
    guard._schedule(NOW + moment)
    assert [each for each, _ in loop.later] == [delay]
    assert guard._wakes_at == NOW + moment


@pytest.mark.parametrize("why", ["stopped", "closed"])
def test_no_timer_is_set_on_a_loop_that_has_ended(guard: Any, loop: Loop, why: str) -> None:
    guard._stopped, loop.closed = why == "stopped", why == "closed"
    guard._schedule(NOW)
    assert (loop.later, guard._wakes_at) == ([], math.inf)
    assert guard not in of_tasks._kept


def test_a_claim_that_stays_moves_the_timer_only_if_it_leaves_before(guard: Any, loop: Loop) -> None:
    for id, seconds in (("a", 5.0), ("b", 5.0), ("c", 4.0)):
        staying = grant(id)
        staying._free_at = NOW + seconds
        guard.release_later(staying)
    assert [delay for delay, _ in loop.later] == [5.0, 4.0]


def test_a_doubt_about_what_a_task_holds_is_looked_at_now(guard: Any, loop: Loop) -> None:
    guard.add(held := grant("a"))
    guard.doubt("b")
    assert len(loop.later) == 1
    guard.doubt("a")
    assert loop.later[1][0] == 0.0
    assert (guard.remove(held), guard.remove(held)) == (True, False)


@pytest.mark.parametrize("closed", [False, True])
def test_a_watchdog_that_stops_cancels_its_timer_and_its_tasks(guard: Any, loop: Loop, closed: bool) -> None:
    cancelled: list[int] = []
    guard._tasks.add(Task(cancel=lambda: cancelled.append(1)))
    guard.stop()
    assert cancelled == [1]
    guard._stopped = False
    guard.add(grant("a"))
    loop.closed = closed
    guard.stop()
    assert len(loop.cancelled) == 1
    assert (guard._stopped, guard._timer) == (True, None)
    assert len(cancelled) == (1 if closed else 2)
    assert guard not in of_tasks._kept


def test_it_is_kept_while_there_is_something_that_the_exit_could_take_out(
    guard: Any, loop: Loop, keeper: Any, queue: Queue
) -> None:
    assert guard.needed is False
    keeper.entering = {"a": "a call"}
    assert guard.needed is True
    guard._schedule(NOW)
    guard._timer, guard._wakes_at = None, math.inf
    guard._rest()
    assert guard in of_tasks._kept, "somebody waits in line"
    keeper.entering = {}
    guard._rest()
    assert guard not in of_tasks._kept
    guard.add(held := grant("a"))
    guard._rest()
    assert guard.needed is True
    assert guard in of_tasks._kept
    guard.remove(held)
    guard._rest()
    assert guard in of_tasks._kept, "the timer will come"
    guard._timer = None
    guard._rest()
    assert guard not in of_tasks._kept


def test_watchdogs_of_loops_that_are_over_are_forgotten_when_another_is_made(
    guard: Any, loop: Loop, keeper: Any, queue: Queue
) -> None:
    async def made() -> None:
        LoopWatchdog(queue, None, None, None, keeper)  # type: ignore[arg-type]

    guard._schedule(NOW)
    asyncio.run(made())
    assert guard in of_tasks._kept
    loop.closed, keeper.entering = True, {"a": "a call"}
    asyncio.run(made())
    assert guard in of_tasks._kept
    keeper.entering = {}
    asyncio.run(made())
    assert guard not in of_tasks._kept


def test_the_timer_renews_what_is_due_node_by_node_and_takes_out_what_has_stayed(
    guard: Any, loop: Loop, clock: Clock, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    guard._node_of = lambda claim: claim.id in "cd"
    for id in "ab":
        staying = grant(id)
        staying._free_at = NOW + 5.0
        guard.release_later(staying)
    grants = [grant(id) for id in "cde"]
    for each in grants:
        guard.add(each)
    clock.now = grants[0]._due
    guard._fire()
    assert [name for name, _ in loop.coroutines] == ["interlock-at-least", "interlock-watchdog", "interlock-watchdog"]
    assert len(guard._tasks) == 3, "a loop keeps its tasks weakly"
    for _, coroutine in loop.coroutines:
        asyncio.run(coroutine)
    assert queue.left == ["a", "b"], "also after a failure"
    assert "could not release 'a' after its `at_least`" in caplog.text
    assert queue.renewed == [["c", "d"], ["e"]]
    assert {each._deadline for each in grants} == {NOW + 40.0}
    for task in loop.tasks:
        for function in task.done:
            function(task)
    assert guard._tasks == set()


def test_an_error_of_the_timer_holds_back_nobody(guard: Any, loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    guard.add(held := grant("a"))

    def fails(now: float) -> None:
        raise SystemExit

    guard._table.look = fails
    guard._fire()
    assert "unexpected error in the watchdog" in caplog.text
    assert [delay for delay, _ in loop.later] == [pytest.approx(10.0)] * 2
    assert (guard._timer is not None, guard._wakes_at) == (True, held._due)


def test_the_timer_is_not_set_anew_for_what_it_is_set_for(guard: Any, loop: Loop) -> None:
    guard.add(grant("a"))
    guard._rest()
    guard._wakes_at = NOW + 1.0
    guard._rest()
    assert len(loop.later) == 1


@pytest.mark.parametrize(("number", "requests"), [(1, 1), (99, 1), (100, 2), (250, 3), (300, 4), (1000, 4)])
def test_many_leases_are_renewed_by_up_to_four_requests_at_a_time(guard: Any, number: int, requests: int) -> None:
    asked: list[int] = []

    async def portions(todo: Iterator[list[BaseGrant]]) -> None:
        asked.append(len(next(todo, [])))

    guard._renew_portions = portions
    asyncio.run(guard._renew([grant(str(each)) for each in range(number)]))
    assert len(asked) == requests
    assert asked[0] == min(number, 100)


def test_a_task_renews_who_is_still_there_and_gives_back_whose_block_was_left(
    guard: Any, queue: Queue, given: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    grants = {id: grant(id) for id in "abcd"}
    for each in grants.values():
        guard.add(each)
    grants["a"]._block = grants["b"]._block = lambda: None
    guard.remove(grants["c"])
    asyncio.run(guard._renew(list(grants.values())))
    assert given == ["a", "b"], "also after a failure"
    assert "could not release 'a', whose `async with` was left" in caplog.text
    asyncio.run(guard._renew_portions(iter([[grants["c"]], [grants["d"]]])))
    assert queue.renewed == [["d"], ["d"]]


@pytest.mark.parametrize("error", [away(), TimeoutError(), OSError()])
def test_what_a_task_could_not_renew_is_renewed_soon(
    guard: Any, queue: Queue, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    guard.add(held := grant("b"))
    queue.answers = error
    asyncio.run(guard._renew_portions(iter([[held], [held]])))
    assert held._due == pytest.approx(NOW + 1.5)
    assert len(queue.renewed) == 2, "the others are asked for"
    unexpected = [each for each in caplog.messages if "unexpected" in each]
    assert unexpected == (["unexpected error while renewing"] * 2 if type(error) is OSError else [])


@pytest.mark.parametrize("how", ["cancelled", "failed", "done", "stopped"])
def test_what_a_task_did_not_come_to_is_renewed_by_the_next(guard: Any, loop: Loop, how: str) -> None:
    guard.add(held := grant("a"))
    held._due = held._deadline
    loop.later.clear()
    guard._wakes_at = math.inf
    guard._stopped = how == "stopped"
    task = Task(cancelled=how in ("cancelled", "stopped"))
    task.error = OSError() if how == "failed" else None
    guard._tasks.add(task)
    guard._ended([held], task)
    assert guard._tasks == set()
    soon = how in ("cancelled", "failed")
    assert held._due == (pytest.approx(NOW + 1.5) if soon else held._deadline)
    assert [delay for delay, _ in loop.later] == ([] if how == "stopped" else [pytest.approx(1.5 if soon else 30.0)])
