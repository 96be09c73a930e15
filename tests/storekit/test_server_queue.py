"""The queue of a server: what had no answer; on a fake pool."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from interlock.core.claims import Check, Claim, ClaimView, LockSpec
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import ConnectionEnded, Denied, NoAnswer, NoRoom, Refused, Unreachable
from interlock.core.line import RENEWAL_GONE, RENEWAL_WANTED
from interlock.core.queue import EnterResult
from interlock.runtime import clock
from interlock.runtime.waiters import Waiters
from interlock.storekit._async.listener import AsyncListener
from interlock.storekit._sync.listener import Listener
from interlock.storekit._sync.server_queue import ServerQueue
from interlock.storekit.wire import WAITS
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.support.fake_connections import FailingPool, SilentSubscription

CLAIM = Claim("some", LockSpec("\0name"))


class PlainQueue(ServerQueue[str, None]):
    """A queue on a server, without what these tests do not call."""

    def look(self, key: str) -> list[ClaimView]:
        return []

    def namespaces(self) -> list[str]:
        return []

    def doctor(self) -> list[Check]:
        return []


def queue_that_meets(*errors: StoreError) -> tuple[Any, list[str]]:
    """Return a queue whose requests meet these errors, one after the other, and the list of its requests."""
    wire: Any = SimpleNamespace(
        where="",
        io_timeout=1.0,
        enter=lambda claim, *_: f"enter {claim.id}",
        entered=lambda reply: EnterResult("using", 1),
    )
    pool = FailingPool(*errors)
    return PlainQueue(wire, pool, Mock(), "channel"), pool.asked


@pytest.mark.parametrize("error", [Refused("no"), NoRoom("full"), Unreachable("away"), Denied("wrong password")])
def test_a_refusal_after_a_cut_is_an_unknown_outcome(error: StoreError) -> None:
    queue, asked = queue_that_meets(ConnectionEnded("cut"), error)
    with pytest.raises(UnknownOutcome, match=str(error)):
        queue.enter(CLAIM, None, False, False)
    assert asked == ["enter some"] * 2


@pytest.mark.parametrize(
    ("errors", "state"),
    [
        ([ConnectionEnded("cut"), Unreachable("away")], "indeterminate"),
        ([ConnectionEnded("cut"), NoRoom("full")], "indeterminate"),
        ([ConnectionEnded("cut")] * 7, "indeterminate"),
        ([ConnectionEnded("cut"), NoAnswer("late")], "gone"),
        ([NoAnswer("late")], "gone"),
        ([Unreachable("away")], "busy"),
        ([NoRoom("full")], "busy"),
    ],
)
def test_a_caller_that_waits_hears_what_is_known_of_its_claim(errors: list[StoreError], state: str) -> None:
    queue, _ = queue_that_meets(*errors)
    assert queue.enter(CLAIM, None, True, False).state == state


def test_a_holder_that_waits_on_the_server_is_gone() -> None:
    wire: Any = SimpleNamespace(
        where="",
        io_timeout=1.0,
        enter=lambda claim, *_: "",
        entered=lambda reply: EnterResult("using", 1),
        renew=lambda claims, before: "",
        renewed=lambda claims, reply: [WAITS for _ in claims],
    )
    queue = PlainQueue(wire, FailingPool(), Mock(), "channel")
    queue.enter(CLAIM, None, False, False)
    assert queue.renew([CLAIM, CLAIM._replace(id="another")]) == [RENEWAL_GONE, RENEWAL_WANTED]


def test_a_listener_closed_in_its_pause_subscribes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def subscribe(deadline: float) -> Any:
        tried.append(deadline)
        raise Unreachable("by order of the test")

    listener = Listener(subscribe, Waiters(), "the server", WAIT_LIMIT)
    monkeypatch.setattr("interlock.storekit._sync.listener.rt.sleep", lambda seconds: listener.close())
    with pytest.raises(Unreachable):
        listener.start(clock.now() + WAIT_LIMIT)
    eventually(lambda: "interlock-listener" not in [each.name for each in threading.enumerate()])
    assert len(tried) == 1


def test_a_listener_cancelled_in_its_pause_can_start_again() -> None:
    failures = [Unreachable("by order of the test")]

    async def subscribe(deadline: float) -> Any:
        if failures:
            raise failures.pop()
        return SilentSubscription()

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
