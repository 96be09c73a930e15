"""An acquire by a task: giving way, tasks that are destroyed, the watchdogs of loops."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.acquire import AcquireCall, Held
from interlock.core.claims import Claim
from interlock.core.queue import EnterResult
from interlock.locks.aio import session as of_tasks
from interlock.client.base import AcquireOptions
from interlock.runtime.sync import run
from tests.support.spied_session import NOW, SPEC, USING, WAITS, Colour
from tests.support.spied_store import SpiedStore, away


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

    monkeypatch.setattr(of_tasks, "slices", SimpleNamespace(next=next))
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
