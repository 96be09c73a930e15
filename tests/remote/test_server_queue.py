"""The queue of a server: what had no answer; on a fake pool."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.queue import EnterResult
from interlock.remote._async.listener import AsyncListener
from interlock.remote._async.server_queue import AsyncServerQueue
from interlock.remote._sync.listener import Listener
from interlock.remote.failures import NoAnswer, Unreachable
from interlock.remote.waiters import Waiters
from interlock.remote.wire import NOT_THERE
from interlock.runtime import clock
from interlock.testing.waiting import WAIT_LIMIT, eventually


def test_a_cancellation_forgets_no_claim_that_is_still_to_be_taken_out() -> None:
    asked: list[str] = []
    leaving = asyncio.Event()

    async def ask(request: str, *_: object) -> None:
        asked.append(request)
        if request == "leave a":
            leaving.set()
        await asyncio.sleep(0)
        if request in ("enter a", "enter b", "enter c"):
            raise NoAnswer("by order of the test")

    async def cancelled() -> None:
        wire: Any = SimpleNamespace(
            where="",
            io_timeout=1.0,
            enter=lambda claim, *_: f"enter {claim.id}",
            entered=lambda reply: EnterResult("using", 1),
            leave=lambda claim, *_: f"leave {claim.id}",
            left=lambda reply: NOT_THERE,
        )
        pool: Any = SimpleNamespace(entering=set(), rest=bool, ask=ask)
        queue = AsyncServerQueue[str, None](wire, pool, ask, "channel")
        for id in "abc":
            await queue.enter(Claim(id, LockSpec("\0name")), None, True, False)
        first = asyncio.create_task(queue.enter(Claim("d", LockSpec("\0name")), None, True, False))
        await leaving.wait()
        first.cancel()
        await asyncio.wait((first,))
        await queue.enter(Claim("e", LockSpec("\0name")), None, True, False)

    asyncio.run(cancelled())
    assert [each for each in asked if each.startswith("leave")] == ["leave a", "leave b", "leave c"]


def test_a_listener_that_is_closed_while_it_pauses_subscribes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def subscribe(deadline: float) -> Any:
        tried.append(deadline)
        raise Unreachable("by order of the test")

    listener = Listener(subscribe, Waiters(), "the server", WAIT_LIMIT)
    monkeypatch.setattr("interlock.remote._sync.listener.rt.sleep", lambda seconds: listener.close())
    with pytest.raises(Unreachable):
        listener.start(clock.now() + WAIT_LIMIT)
    eventually(lambda: "interlock-listener" not in [each.name for each in threading.enumerate()])
    assert len(tried) == 1


def test_a_listener_that_a_program_cancels_in_its_pause_can_be_started_again() -> None:
    failures = [Unreachable("by order of the test")]

    async def subscribe(deadline: float) -> Any:
        if failures:
            raise failures.pop()
        return SimpleNamespace(receive=lambda deadline: asyncio.Event().wait(), close=bool)

    async def cancelled() -> None:
        listener = AsyncListener(subscribe, Waiters(), "the server", WAIT_LIMIT)
        with pytest.raises(Unreachable):
            await listener.start(clock.now() + WAIT_LIMIT)
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        task.cancel()
        await asyncio.wait((task,))
        await asyncio.wait_for(listener.start(clock.now() + WAIT_LIMIT), WAIT_LIMIT / 2)
        assert listener.live

    asyncio.run(cancelled())
