"""The queue of a server: what had no answer; on a fake pool."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.remote._async.server_queue import AsyncServerQueue
from interlock.remote._sync.listener import Listener
from interlock.remote.failures import Unreachable
from interlock.remote.waiters import Waiters
from interlock.remote.wire import NOT_THERE
from interlock.runtime import clock
from interlock.testing.waiting import WAIT_LIMIT, eventually


def test_a_cancellation_forgets_no_claim_that_is_still_to_be_taken_out() -> None:
    asked: list[str] = []

    async def ask(request: str, *_: object) -> None:
        asked.append(request)
        await asyncio.sleep(0)

    async def cancelled() -> None:
        wire: Any = SimpleNamespace(
            where="", io_timeout=1.0, leave=lambda claim, *_: claim.id, left=lambda reply: NOT_THERE
        )
        pool: Any = SimpleNamespace(entering=set(), rest=bool, ask=ask)
        queue = AsyncServerQueue[str, None](wire, pool, ask, "channel")
        queue._ghosts.extend(Claim(id, LockSpec("\0name")) for id in "abc")
        first = asyncio.create_task(queue._take_out_ghosts())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        await queue._take_out_ghosts()

    asyncio.run(cancelled())
    assert asked == ["a", "b", "c"]


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
