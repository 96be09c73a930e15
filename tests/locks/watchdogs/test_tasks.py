"""The watchdogs of tasks: when they look again, whom they wake, and what an error leaves undone."""

import asyncio
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.locks.aio import watchdog as of_tasks
from interlock.locks.aio.watchdog import LoopWatchdog
from interlock.client.base import BaseGrant
from interlock.locks.leases import LONGEST_SLEEP
from tests.support.spied_store import Clock, away
from tests.support.spied_watchdog import NOW, Queue, gives_back, grant


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
