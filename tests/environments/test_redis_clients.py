"""Unusual servers and clients of Redis: custom connection classes, fakes, proxies, no scripts."""

import asyncio
import threading
from typing import Any

import pytest

import interlock
from interlock.runtime import clock
from tests.servers import RedisServer, need

redis = pytest.importorskip("redis")
from redis.asyncio import Connection as OfTasks  # noqa: E402
from redis.asyncio import ConnectionPool as PoolOfTasks  # noqa: E402
from redis.asyncio import Redis as ClientOfTasks  # noqa: E402


def of_own(kind: Any) -> Any:
    """Return a connection class that counts its objects and adds the password itself."""

    class Own(kind):  # type: ignore[misc]
        made = 0

        def __init__(self, **given: Any) -> None:
            Own.made += 1
            super().__init__(**given, password="secret")

    return Own


@pytest.fixture(scope="module")
def server() -> Any:
    need("redis")
    with RedisServer("redis", password="secret") as server:
        yield server


def test_connections_are_made_by_the_class_of_the_program(server: RedisServer) -> None:
    own = of_own(redis.Connection)
    client = redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=own, host=server.host, port=server.port)
    )
    with interlock.connect(client) as locks, interlock.connect(client) as others:
        grant = locks.lock("x").acquire()
        waiter = threading.Thread(target=lambda: others.lock("x", timeout=20).acquire().release())
        waiter.start()
        assert others.lock("x").acquire(timeout=0.2) is None
        grant.release()
        waiter.join(20)
        assert not waiter.is_alive()
    assert own.made >= 3  # of two connections, and of a listener


def test_connections_of_tasks_use_the_programs_class(server: RedisServer) -> None:
    own = of_own(OfTasks)

    async def play() -> None:
        client = ClientOfTasks(connection_pool=PoolOfTasks(connection_class=own, host=server.host, port=server.port))
        async with interlock.aconnect(client) as locks, interlock.aconnect(client) as others:
            grant = await locks.lock("x").acquire()
            waiter = asyncio.ensure_future(others.lock("x").acquire(timeout=20))
            assert await others.lock("x").acquire(timeout=0.2) is None
            await grant.release()
            assert await (await waiter).release()

    asyncio.run(play())
    assert own.made >= 3


def test_a_refusal_over_an_own_class_says_the_same(server: RedisServer) -> None:
    pool = redis.ConnectionPool(connection_class=of_own(redis.Connection), host=server.host, port=server.port, db=99)
    with interlock.connect(redis.Redis(connection_pool=pool)) as locks:
        with pytest.raises(interlock.StoreError, match="out of range"):
            locks.lock("x").acquire(timeout=1)


def test_a_fake_server_in_memory_keeps_locks() -> None:
    fakeredis = pytest.importorskip("fakeredis")
    pytest.importorskip("lupa")
    client = fakeredis.FakeRedis()
    with interlock.connect(client) as locks, interlock.connect(client) as others:
        with locks.lock("x"):
            assert others.lock("x").acquire(timeout=0.1) is None
        with others.lock("x", timeout=5):
            pass

    async def play() -> None:
        async with interlock.aconnect(fakeredis.FakeAsyncRedis()) as locks, locks.lock("x"):
            assert await locks.lock("x").acquire(timeout=0.1) is None

    asyncio.run(play())


WITHOUT = '""'


def test_a_server_whose_scripts_are_switched_off_says_that() -> None:
    need("redis")
    off = {"rename-command EVALSHA": WITHOUT, "rename-command EVAL": WITHOUT}
    with RedisServer("redis", config=off) as server, interlock.connect(server.url) as locks:
        with pytest.raises(interlock.StoreError, match="forbids scripts") as raised:
            locks.lock("x").acquire(timeout=1)
    assert "Redis 6" not in str(raised.value)


@pytest.mark.parametrize("tasks", [False, True])
def test_without_subscribe_waiters_poll_and_one_warning_says_so(
    tasks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    need("redis")
    lacks = {"rename-command SUBSCRIBE": WITHOUT, "rename-command INFO": WITHOUT}
    with RedisServer("redis", config=lacks) as server, interlock.connect(server.url) as locks:
        grant = locks.lock("x").acquire()
        threading.Timer(1.0, grant.release).start()
        began = clock.now()
        if tasks:
            asyncio.run(_once(server.url))
        else:
            with interlock.connect(server.url) as others, others.lock("x", timeout=20), others.lock("y"):
                pass
        assert clock.now() - began < 2.5  # a listener polls only after 5 s
    assert [record.message for record in caplog.records].count(said := caplog.records[0].message) == 1
    assert "Waiters poll every" in said


async def _once(url: str) -> None:
    async with interlock.aconnect(url) as others, others.lock("x", timeout=20), others.lock("y"):
        pass
