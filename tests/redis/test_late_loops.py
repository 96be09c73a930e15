"""Several event loops, of which one releases, or closes, what belongs to another."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock.testing.actors import Background
from interlock.testing.waiting import eventually, throughout
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
