"""Closing while somebody waits: the waiter is told, and nothing hangs."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
import redis.asyncio

import interlock
from interlock._redis.aconnection import AsyncConnection
from interlock._redis.apool import AsyncPool
from interlock._redis.clients import factory_of
from interlock._redis.connection import Connection
from interlock._redis.message import ConnectionEnded, Message
from interlock._redis.pool import Pool
from interlock._redis.resp import pack
from interlock.core.errors import StoreError
from interlock.testing.actors import ThreadActor
from interlock.testing.waiting import eventually
from tests.servers import Proxy, RedisServer, need


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A private server."""
    need("valkey")
    with RedisServer("valkey") as server:
        yield server


def test_whoever_waits_when_the_connection_is_closed_is_told(server: RedisServer) -> None:
    eye, locks = interlock.connect(server.url), interlock.connect(server.url)
    holder = eye.lock("x").acquire()
    actors = [ThreadActor() for _ in range(3)]
    waiting = [actor.start(locks.lock("x").acquire) for actor in actors]
    eventually(lambda: len(eye.claims("x")) == 4)
    locks.close()
    for each in waiting:
        with pytest.raises(StoreError, match="closed"):
            each.result(20)
    assert holder.release() is True
    eye.close()
    for actor in actors:
        actor.end()


def test_a_connection_that_is_ready_only_after_the_store_was_closed_is_closed_too(server: RedisServer) -> None:
    async def story() -> None:
        pool = AsyncPool(factory_of(redis.asyncio.Redis.from_url(server.url), tasks=True))
        opened: list[AsyncConnection] = []
        open_connection = pool._connections._open

        async def close_meanwhile() -> AsyncConnection:
            connection = await open_connection()
            asyncio.get_running_loop().call_soon(pool.close)  # after this task, before those who wait for it
            opened.append(connection)
            return connection

        pool._connections._open = close_meanwhile
        with suppress(StoreError):
            await pool.aask(Message(b"PING\r\n", ""))
        await asyncio.wait_for(opened[0].gone, 10)

    asyncio.run(story())


def test_a_late_reply_that_nobody_waits_for_any_more_leaves_no_connection_open(server: RedisServer) -> None:
    async def story() -> None:
        url = f"{server.url}?socket_timeout=0.2"
        pool = AsyncPool(factory_of(redis.asyncio.Redis.from_url(url), tasks=True))
        await pool.aask(Message(b"PING\r\n", ""))
        (connection,) = pool.connections()
        server.pause()
        try:
            asking = asyncio.create_task(pool.aask(Message(b"PING\r\n", "")))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            await asyncio.wait_for(connection.gone, 10)
        finally:
            server.resume()
        pool.close()

    asyncio.run(story())


def test_after_a_cut_no_connection_from_before_it_is_used(server: RedisServer) -> None:
    with Proxy(server.host, server.port) as proxy:
        pool = Pool(factory_of(redis.Redis(port=proxy.port), tasks=False))
        ping = Message(b"*1\r\n$4\r\nPING\r\n", "")
        lent = pool._take(None)  # another thread has it when the cut comes
        pool.ask(ping)
        proxy.cut()
        with pytest.raises(ConnectionEnded):
            pool.ask(ping)
        pool._idle.append(lent)
        assert pool.ask(ping) == b"PONG"
        pool.close()


@pytest.mark.parametrize("owner", [None, "a claim"])
@pytest.mark.parametrize("way", ["exchange", "ask"])
def test_after_an_interrupt_nobody_gets_the_reply_of_another(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, way: str, owner: str | None
) -> None:
    pool = Pool(factory_of(redis.Redis.from_url(server.url), tasks=False))

    def echo(text: str, owner: str | None = None) -> object:
        command = pack("ECHO", text)
        return pool.exchange(command, "", owner) if way == "exchange" else pool.ask(Message(command, "", owner))

    assert echo("first") == b"first"

    def interrupted(connection: Connection, end: float) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "first", interrupted)
    with pytest.raises(KeyboardInterrupt):
        echo("lost", owner)
    monkeypatch.undo()
    assert [echo(text) for text in ("mine", "yours")] == [b"mine", b"yours"]
    pool.close()
