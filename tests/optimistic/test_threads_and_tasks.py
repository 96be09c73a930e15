"""Differences between threads and tasks: cancellation, coroutine functions, and the decorator."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

from interlock.core.errors import InvalidArgument, StoreError
from interlock.optimistic import atransact, transact, transactional
from interlock.testing.waiting import WAIT_LIMIT
from tests.servers import Proxy, RedisServer
from tests.support.tasks import cancelled


@asynccontextmanager
async def connected(url: str, **settings: Any) -> AsyncIterator[Any]:
    """A client of asyncio."""
    async with redis.asyncio.Redis.from_url(url, **settings) as client:
        yield client


async def happened(condition: Callable[[], Awaitable[Any]]) -> None:
    """Wait until the condition is true, without blocking the loop."""
    async with asyncio.timeout(WAIT_LIMIT):
        while not await condition():  # noqa: ASYNC110 - no event is set for it
            await asyncio.sleep(0.005)


def test_the_wrong_colour_is_refused(server: RedisServer) -> None:
    async def function(tx: Any) -> None:
        raise AssertionError("not called")

    def plain(tx: Any) -> None:
        raise AssertionError("not called")

    async def main() -> None:
        async with connected(server.url) as tasks:
            with pytest.raises(InvalidArgument, match=r"client for asyncio\. Pass it to atransact\(\)"):
                transact(tasks, plain)
        with redis.Redis.from_url(server.url) as threads:
            with pytest.raises(InvalidArgument, match="would block the event loop"):
                await atransact(threads, function)
            with pytest.raises(InvalidArgument, match=r"coroutine function\. Pass it to atransact\(\)"):
                transact(threads, function)
            with pytest.raises(InvalidArgument, match=r"returned a coroutine\. Pass the function to atransact\(\)"):
                transact(threads, lambda tx: function(tx))

    asyncio.run(main())


@pytest.mark.parametrize("watched", [(), ("copies",)])
def test_a_task_that_is_cancelled_in_its_function_leaves_nothing(
    server: RedisServer, other: Any, watched: tuple[str, ...]
) -> None:
    async def main() -> None:
        async with connected(server.url, max_connections=1) as client:
            inside = asyncio.Event()

            async def function(tx: Any) -> None:
                await tx.get("copies")
                tx.set("copies", 1)
                inside.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(atransact(client, function, *watched))
            await inside.wait()
            await cancelled(task)
            assert await atransact(client, lambda tx: tx.incr("runs")) == 1  # the only connection is free and sound

    asyncio.run(main())
    assert other.mget("copies", "runs") == [None, "1"]


def test_a_task_cancelled_in_its_commit_commits_all_or_nothing(server: RedisServer, proxy: Proxy, other: Any) -> None:
    async def main() -> None:
        async with connected(proxy.url, max_connections=1) as client:
            await atransact(client, lambda tx: tx.set("a", 0))

            async def function(tx: Any) -> None:
                await tx.get("a")
                proxy.black_hole(passes_requests=True)
                tx.incr("a")
                tx.incr("b")

            task = asyncio.create_task(atransact(client, function))

            async def done() -> bool:
                return await asyncio.to_thread(other.get, "a") == "1"

            await happened(done)
            await cancelled(task)
            proxy.restore()
            assert await atransact(client, lambda tx: tx.incr("runs")) == 1

    asyncio.run(main())
    assert other.mget("a", "b") == ["1", "1"]


def test_a_read_abandoned_by_the_function_commits_nothing(server: RedisServer, proxy: Proxy, other: Any) -> None:
    """The function's own time-out closes the connection of the read, and so ends its WATCH: the commit must fail."""

    async def main() -> None:
        async with connected(proxy.url) as client:
            await client.ping()

            async def function(tx: Any) -> None:
                proxy.black_hole()
                try:
                    async with asyncio.timeout(0.05):
                        await tx.get("copies")
                except TimeoutError:
                    proxy.restore()
                tx.set("copies", 1)

            with pytest.raises(StoreError, match=r"interrupted.*Nothing was changed"):
                await atransact(client, function)

    asyncio.run(main())
    assert other.get("copies") is None


def test_the_decorator_makes_a_transaction_of_each_call(server: RedisServer, other: Any) -> None:
    other.mset({"Dune": 2, "Emma": 1})

    @transactional(other, retries=3)
    def borrow(tx: Any, title: str, *, count: int = 1) -> int:
        """Borrow a book."""
        left = int(tx.get(title)) - count
        if tx.number == 1:
            other.incr(title)
        tx.set(title, left)
        return left

    assert borrow("Dune") == 2
    assert borrow("Emma", count=2) == 0
    assert borrow.__name__ == "borrow"
    assert borrow.__doc__ == "Borrow a book."
    assert other.mget("Dune", "Emma") == ["2", "0"]


def test_the_decorator_refuses_bad_limits_at_once() -> None:
    with pytest.raises(InvalidArgument, match="retries"):
        transactional(None, retries=-1)


def test_what_would_run_in_no_transaction_is_refused(server: RedisServer, other: Any) -> None:
    def generator(tx: Any) -> Iterator[Any]:
        yield tx.set("copies", 1)

    async def agenerator(tx: Any) -> AsyncIterator[Any]:
        yield tx.set("copies", 1)

    class Called:
        async def __call__(self, tx: Any) -> Any:
            return tx.set("copies", 2)

    async def late(tx: Any) -> Any:
        return generator(tx)

    async def main() -> None:
        async with connected(server.url) as client:
            for each in (generator, agenerator, late, lambda tx: generator(tx), partial(generator)):
                with pytest.raises(InvalidArgument):
                    await atransact(client, each)
            with pytest.raises(InvalidArgument, match="generator"):
                transactional(client)(agenerator)
            assert await transactional(client)(Called())() is True

    asyncio.run(main())
    assert other.get("copies") == "2"
    with redis.Redis.from_url(server.url) as client:
        for each in (generator, lambda tx: generator(tx), partial(generator), Called(), partial(Called())):
            with pytest.raises(InvalidArgument):
                transact(client, each)
    assert other.get("copies") == "2"
