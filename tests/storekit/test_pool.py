"""The pool of exclusive connections: a limit, first come first served, one deadline; on fake connections."""

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import StoreError
from interlock.core.failures import ConnectionEnded, NoAnswer, NoRoom, Refused, Unreachable
from interlock.runtime import clock
from interlock.storekit._async.pool import AsyncPool
from interlock.storekit._sync.pool import Pool
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.support.fake_connections import AsyncEcho, FakeConnection, FakeServer

SOON = 0.1  # seconds
CLAIM = Claim("some", LockSpec("ns\x1fname"))


def leave(claim: Claim) -> str:
    """Return the request that withdraws a claim."""
    return f"leave {claim.id}"


def later(seconds: float = WAIT_LIMIT) -> float:
    return clock.now() + seconds


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def pool(server: FakeServer) -> Iterator[Pool]:
    pool = Pool(server.connect, "the server", 3)
    yield pool
    server.go.set()
    pool.close()
    eventually(lambda: not server.open)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as found:
        yield found


def test_a_connection_is_used_again(pool: Pool, server: FakeServer) -> None:
    assert [pool.ask(number, later()) for number in range(5)] == list(range(5))
    assert server.made == 1


def test_a_refusal_costs_no_connection(pool: Pool, server: FakeServer) -> None:
    for _ in range(2):
        with pytest.raises(Refused):
            pool.ask(Refused("no"), later())
    assert server.made == 1


def test_there_are_never_more_than_may_be_and_all_get_through(
    pool: Pool, server: FakeServer, threads: ThreadPoolExecutor
) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        done = [threads.submit(pool.ask, number, later()) for number in range(2000)]
        assert [each.result(WAIT_LIMIT) for each in done] == list(range(2000))
    finally:
        sys.setswitchinterval(before)
    assert len(server.open) <= 3


def test_whoever_waits_too_long_is_told_that_all_are_in_use(
    pool: Pool, server: FakeServer, threads: ThreadPoolExecutor
) -> None:
    held = [threads.submit(pool.ask, "hold", later()) for _ in range(3)]
    eventually(lambda: len(server.open) == 3)
    with pytest.raises(NoRoom, match="All 3 connections"):
        pool.ask(1, later(SOON))
    server.go.set()
    assert [each.result(WAIT_LIMIT) for each in held] == ["hold"] * 3
    assert pool.ask(2, later()) == 2


def test_what_renews_or_frees_goes_before_what_enters(server: FakeServer, threads: ThreadPoolExecutor) -> None:
    pool = Pool(server.connect, "the server", 1, leave)
    pool.entering.add(CLAIM.id)
    held = threads.submit(pool.ask, "hold", later())
    eventually(lambda: server.open and server.open[0].inside)
    order: list[str] = []

    def ask(name: str, undo: Claim | None) -> None:
        pool.ask(name, later(), undo)
        order.append(name)

    waiting = []
    for number, (name, undo) in enumerate([("enter", CLAIM), ("enter too", CLAIM), ("leave", None)]):
        waiting.append(threads.submit(ask, name, undo))
        eventually(lambda number=number: len(pool._line) == number + 1)  # type: ignore[misc]
    server.go.set()
    for each in [held, *waiting]:
        each.result(WAIT_LIMIT)
    assert order[0] == "leave"
    pool.close()


def test_a_claim_withdrawn_before_its_connection_is_not_sent(server: FakeServer, threads: ThreadPoolExecutor) -> None:
    pool = Pool(server.connect, "the server", 1, leave)
    pool.entering.add(CLAIM.id)
    held = threads.submit(pool.ask, "hold", later())
    eventually(lambda: server.open and server.open[0].inside)
    entering = threads.submit(pool.ask, "enter", later(), CLAIM)
    eventually(lambda: len(pool._line) == 1)
    pool.entering.discard(CLAIM.id)
    server.go.set()
    with pytest.raises(StoreError, match="closed"):
        entering.result(WAIT_LIMIT)
    assert held.result(WAIT_LIMIT) == "hold"
    assert pool.ask("others", later()) == "others"
    pool.close()


def test_a_withdrawn_claim_is_not_sent_on_an_idle_connection(pool: Pool) -> None:
    assert pool.ask(1, later()) == 1
    with pytest.raises(StoreError, match="closed"):
        pool.ask("enter", later(), CLAIM)
    assert pool.ask(2, later()) == 2


@pytest.mark.parametrize("error", [NoAnswer("late"), KeyboardInterrupt()])
def test_the_undo_follows_a_request_without_an_answer(pool: Pool, server: FakeServer, error: BaseException) -> None:
    class Broken(FakeConnection):
        def ask(self, request: Any, deadline: float) -> Any:
            raise error

    server.connect = lambda deadline: server.open.append(Broken(server)) or server.open[-1]  # type: ignore
    pool = Pool(server.connect, "the server", 3, leave)
    pool.entering.add(CLAIM.id)
    with pytest.raises(type(error)):
        pool.ask("enter", later(), CLAIM)
    assert server.undone == ["leave some"]
    assert not server.open


def test_after_a_connection_that_ended_none_of_before_is_used(
    pool: Pool, server: FakeServer, threads: ThreadPoolExecutor
) -> None:
    held = [threads.submit(pool.ask, "hold", later()) for _ in range(2)]
    eventually(lambda: len(server.open) == 2)
    old = list(server.open)
    with pytest.raises(ConnectionEnded):
        pool.ask(ConnectionEnded("cut"), later())
    server.go.set()
    assert [each.result(WAIT_LIMIT) for each in held] == ["hold"] * 2
    assert all(each.closed for each in old)
    assert pool.ask(1, later()) == 1


def test_where_the_server_lets_in_no_more_they_share(server: FakeServer, threads: ThreadPoolExecutor) -> None:
    server.most = 2
    pool = Pool(server.connect, "the server", 10)
    done = [threads.submit(pool.ask, number, later()) for number in range(500)]
    assert [each.result(WAIT_LIMIT) for each in done] == list(range(500))
    server.most = 0
    pool.invalidate_connections()
    with pytest.raises(NoRoom):
        pool.ask(1, later())
    pool.close()


def test_one_that_can_not_be_made_gives_its_place_back(server: FakeServer) -> None:
    def refuse(deadline: float) -> Any:
        raise Unreachable("nobody there")

    pool = Pool(refuse, "the server", 2)
    for _ in range(5):
        with pytest.raises(Unreachable):
            pool.ask(1, later())


def test_rest_leaves_one_and_close_none(pool: Pool, server: FakeServer, threads: ThreadPoolExecutor) -> None:
    held = [threads.submit(pool.ask, "hold", later()) for _ in range(3)]
    eventually(lambda: len(server.open) == 3)
    server.go.set()
    assert all(each.result(WAIT_LIMIT) for each in held)
    pool.close_idle()
    assert len(server.open) == 1
    server.go.clear()
    waiting = [threads.submit(pool.ask, "hold", later()) for _ in range(4)]
    eventually(lambda: len(server.open) == 3)
    pool.close()
    with pytest.raises(StoreError, match="closed"):
        pool.ask(1, later())
    server.go.set()
    assert sorted(each.exception(WAIT_LIMIT) is None for each in waiting) == [False, True, True, True]
    eventually(lambda: not server.open)


def test_a_connection_of_a_cancelled_task_goes_to_the_next() -> None:
    """So cancels anyio; the connection is handed over at the same moment."""

    async def cancelled_as_it_is_told() -> str:
        async def connect(deadline: float) -> Any:
            return AsyncEcho()

        pool = AsyncPool[str, str](connect, "the server", 1)
        connection = await pool._take(later(), False)
        waiting = asyncio.create_task(pool.ask("late", later()))
        await asyncio.sleep(0)
        pool._put(connection)
        while not waiting.done():
            waiting.cancel()
            await asyncio.sleep(0)
        return await pool.ask("next", later(SOON))

    assert asyncio.run(cancelled_as_it_is_told()) == "next"
