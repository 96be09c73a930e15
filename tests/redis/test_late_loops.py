"""Several event loops, of which one releases, or closes, what belongs to another."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio

import interlock
from interlock._redis.apool import AsyncPool
from interlock._redis.clients import factory_of
from interlock._redis.message import Message
from interlock._redis.resp import pack
from interlock.testing.actors import Background
from interlock.testing.waiting import WAIT_LIMIT, eventually, throughout
from tests.servers import Proxy, RedisServer, Wire
from tests.support.redis_worlds import client_ids


@pytest.fixture
def loops() -> Iterator[list[asyncio.AbstractEventLoop]]:
    """Two event loops, whose end tells nobody anything, unlike that of `asyncio.run`."""
    loops = [asyncio.new_event_loop() for _ in range(2)]
    yield loops
    for loop in loops:
        loop.close()
    gc.collect()  # what is litter here is not to be another test's


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_a_claim_that_arrives_after_another_loop_released_it_leaves_no_orphan(
    server: RedisServer, proxy: Proxy, loops: list[asyncio.AbstractEventLoop], ended: bool, others: bool
) -> None:
    """With `others`, something else was done in the second loop before, so what has ended is cleared away.

    A loop that is closed as it is leaves its transports as litter, of which Python warns.
    """
    one, two = (loop.run_until_complete for loop in loops)
    with interlock.connect(server.url) as direct:

        async def connect() -> Any:
            locks = interlock.aconnect(f"{proxy.url}?socket_timeout=0.5")
            await (await locks.lock("b").acquire()).release()
            return locks

        locks = one(connect())
        proxy.hold()
        grant = one(locks.lock("a").acquire(timeout=3))
        assert grant is not None
        if ended:
            loops[0].close()
        if others:
            two(_pair(locks))
        assert two(grant.release()) is True
        assert direct.claims() == []
        eventually(lambda: proxy.sent.count(grant.id.encode()) >= 4)  # enter and leave, by each of two connections
        proxy.pass_on()
        throughout(0.3, lambda: direct.claims() == [])
        two(locks.close())


async def _pair(locks: Any) -> None:
    await (await locks.lock("b").acquire()).release()


def test_connections_of_a_loop_that_another_thread_runs_are_closed_at_once(server: RedisServer) -> None:
    """That loop has nothing to do, so who closes must wake it; in debug mode it refuses calls of the wrong thread."""
    locks = interlock.aconnect(server.url)
    running = Background()
    running.loop.set_debug(True)
    wire = Wire((server.host, server.port))
    try:
        grant = running.run(_waited(locks))
        assert client_ids(wire, "normal")
        assert client_ids(wire, "pubsub")
        running.run(grant.release())
        asyncio.run(locks.close())
        eventually(lambda: not client_ids(wire, "normal") and not client_ids(wire, "pubsub"))
    finally:
        wire.close()
        running.close()


async def _waited(locks: Any) -> Any:
    """Return a grant that was waited for."""
    first = await locks.lock("a").acquire()
    waiting = asyncio.ensure_future(locks.lock("a").acquire())
    while len(await locks.claims("a")) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await first.release()
    return await waiting


class Stop(Exception):
    """Ends a program."""


def test_a_program_that_ends_while_it_connects_anew_leaves_no_claim(server: RedisServer, proxy: Proxy) -> None:
    """`asyncio.run` cancels all tasks then, also the one that connects, and who was cancelled still has to leave."""
    proxy.delay(0.02)  # so that connecting takes a while

    async def hold(locks: Any, name: str) -> None:
        async with locks.lock(name, ttl=60):
            await asyncio.Event().wait()

    async def main() -> None:
        locks = interlock.aconnect(proxy.url)
        tasks = [asyncio.ensure_future(hold(locks, name)) for name in "abc" * 2]
        while len(await locks.claims()) < len(tasks):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.to_thread(proxy.cut)
        locked = asyncio.ensure_future(locks.lock("d").locked())  # connects anew
        while not locks._session.store._pool.opening():  # noqa: ASYNC110
            await asyncio.sleep(0)
        locked.cancel()
        raise Stop

    with interlock.connect(server.url) as direct:
        for _ in range(5):
            with pytest.raises(Stop):
                asyncio.run(main())
            assert direct.claims() == []


def test_a_loop_that_ends_subscribes_for_nobody_else(server: RedisServer) -> None:
    """Tasks of another loop wait; each has a subscription of its own."""
    locks = interlock.aconnect(server.url)
    running = Background()

    async def wait() -> Any:
        return await locks.lock("a").acquire()

    async def short() -> None:
        assert await locks.lock("a").acquire(timeout=0.1) is None

    with interlock.connect(server.url) as direct:
        grant = direct.lock("a").acquire()
        assert grant is not None
        waiting = asyncio.run_coroutine_threadsafe(wait(), running.loop)
        try:
            eventually(lambda: len(direct.claims("a")) == 2)
            for _ in range(3):
                asyncio.run(short())
            assert locks._session.store._subscription._again == set()  # type: ignore[attr-defined]
            grant.release()
            running.run(waiting.result(WAIT_LIMIT).release())
            asyncio.run(locks.close())
        finally:
            running.close()


def test_the_reply_to_asking_is_nobodys(server: RedisServer, proxy: Proxy) -> None:
    """Where the connection ends before it comes, nobody is told."""
    told: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        async with interlock.aconnect(proxy.url) as locks:
            await (await locks.lock("a").acquire()).release()
            pool: Any = locks._session.store._pool
            proxy.black_hole()
            asking = asyncio.ensure_future(pool.connections()[0].ask(pack("GET", "x"), True))
            await asyncio.sleep(0)
            await asyncio.to_thread(proxy.cut)
            with pytest.raises(interlock.StoreError):
                await asking
            proxy.restore()
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert told == []


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("runs", [True, False])
def test_the_reply_to_a_late_leave_is_given_to_nobody(
    server: RedisServer, loops: list[asyncio.AbstractEventLoop], runs: bool
) -> None:
    """Said by another loop, on a connection that goes on: whoever asks after it has his own reply."""
    running = Background() if runs else None
    run: Any = running.run if running is not None else loops[0].run_until_complete
    pool = AsyncPool(factory_of(redis.asyncio.Redis.from_url(server.url), tasks=True))

    async def echoed(number: int) -> Any:
        return await pool.aask(Message(pack("ECHO", f"{number}"), ""))

    async def leaves(connection: Any) -> bool:
        told: bool = connection.leave_late("claim", pack("ECHO", "late"))
        return told

    try:
        assert run(echoed(0)) == b"0"
        (connection,) = pool._connections.all()
        assert loops[1].run_until_complete(leaves(connection)) is True
        assert [run(echoed(number)) for number in range(1, 4)] == [b"1", b"2", b"3"]
        loops[1].run_until_complete(_closed(pool))
    finally:
        if running is not None:
            running.close()


async def _closed(pool: AsyncPool) -> None:
    pool.close()
