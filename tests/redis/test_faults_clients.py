"""With any client of the program: bytes or text, either protocol, its own retries, pools and sockets."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.backoff
import redis.retry
import redis.sentinel
import valkey
import valkey.asyncio

from interlock.core.errors import StoreError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import TASKS, THREADS, ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, eventually, lasting, until_renewed
from tests.servers import Proxy, RedisSentinel, RedisServer, need
from tests.servers.resp import Refused
from tests.support.redis_helpers import connect_to, for_interface, is_of_use, place_of, servers_with

HOW: dict[str, dict[str, Any]] = {
    "bytes": {},
    "text": {"decode_responses": True},
    "RESP3": {"protocol": 3},
    "RESP3 and text": {"protocol": 3, "decode_responses": True},
    "another database": {"db": 3},
    "a name": {"client_name": "ours"},
    "a short time-out": {"socket_timeout": 0.5},
    "health checks": {"health_check_interval": 1},
    "another encoding": {"encoding": "latin-1", "decode_responses": True},
}


REDIS_PY = (redis.Redis, redis.asyncio.Redis)
VALKEY_PY = (valkey.Valkey, valkey.asyncio.Valkey)
LIBRARIES = {"redis": REDIS_PY, "valkey": VALKEY_PY}  # by the kind of server that they are made for


@pytest.fixture
def made(world: ContractWorld) -> Iterator[Callable[..., Any]]:
    """Makes clients in the colour of the world, where they are used, and closes them: `made((sync, task), …)`."""
    ann = world.actor()
    clients = []

    def make(makers: tuple[Any, Any], *args: Any, **how: Any) -> Any:
        maker = for_interface(world, *makers)
        clients.append(ann.do(lambda: maker(*args, **how)))
        return clients[-1]

    yield make
    for client in clients:
        ann.do(closer(world, client))


def closer(world: ContractWorld, client: Any) -> Any:
    """Return a function that closes a client, in the colour of a world."""
    return getattr(client, for_interface(world, "close", "aclose"))


def works(world: ContractWorld, client: Any) -> None:
    """Check that locks work with a client, with a hand-over, and that the client still works afterwards."""
    ann, locks = world.actor(), connect_to(world, client)
    grant = ann.do(locks.lock(world.name, ttl=RENEWED).acquire)
    until_renewed(grant)
    assert ann.do(grant.release) is True
    is_of_use(world, locks)
    ann.do(locks.close)
    assert ann.do(client.ping) is True
    ann.do(client.set, "the program's own", "value")
    assert ann.do(client.get, "the program's own") in ("value", b"value")


@pytest.mark.parametrize("how", list(HOW))
def test_locks_work_over_a_client(
    world: ContractWorld, server: RedisServer, made: Callable[..., Any], how: str
) -> None:
    works(world, made(LIBRARIES[server.kind], host=server.host, port=server.port, **HOW[how]))


def test_locks_work_over_a_client_of_the_other_library(
    world: ContractWorld, server: RedisServer, made: Callable[..., Any]
) -> None:
    other = REDIS_PY if server.kind == "valkey" else VALKEY_PY
    works(world, made(other, host=server.host, port=server.port, decode_responses=True))


def test_every_kind_of_lock_works_with_a_decoding_resp3_client(
    world: ContractWorld, server: RedisServer, made: Callable[..., Any], kind: LockKind
) -> None:
    client = made(LIBRARIES[server.kind], host=server.host, port=server.port, decode_responses=True, protocol=3)
    is_of_use(world, connect_to(world, client), kind)


def test_locks_work_over_a_unix_socket(world: ContractWorld, server: RedisServer, made: Callable[..., Any]) -> None:
    works(world, made(REDIS_PY, unix_socket_path=server.socket))
    locks = connect_to(world, f"unix://{server.socket}")
    ann = world.actor()
    assert ann.do(ann.do(locks.lock(world.name).acquire).release) is True


WITHOUT_HIREDIS = """
import sys
sys.modules["hiredis"] = None
import asyncio, interlock, redis, redis.asyncio

class Own(redis.Connection):
    pass

class AsyncOwn(redis.asyncio.Connection):
    pass

def place(module, kind):
    how = {} if sys.argv[3] == "default" else {"protocol": int(sys.argv[3])}
    pool = module.ConnectionPool(connection_class=kind, host=sys.argv[1], port=int(sys.argv[2]), **how)
    return module.Redis(connection_pool=pool)

async def main():
    async with interlock.aconnect(place(redis.asyncio, AsyncOwn)) as locks, locks.lock("a"):
        pass

with interlock.connect(place(redis, Own)) as locks, locks.lock("a"):
    pass
asyncio.run(main())
"""


def plays(server: RedisServer, protocol: str) -> None:
    """Lock over a connection class of the program in both colours, in a process without hiredis."""
    command = [sys.executable, "-c", WITHOUT_HIREDIS, server.host, str(server.port), protocol]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("protocol", ["default", "2", "3"])
def test_an_own_class_works_without_hiredis(server: RedisServer, protocol: str) -> None:
    plays(server, protocol)


@pytest.mark.parametrize("server", servers_with(config={"rename-command HELLO": '""'}), indirect=True)
def test_locks_work_where_there_is_no_hello(
    world: ContractWorld, server: RedisServer, made: Callable[..., Any]
) -> None:
    with pytest.raises(Refused, match="HELLO"):
        server.command("HELLO", 3)
    is_of_use(world, world.connect())
    works(world, made(REDIS_PY, host=server.host, port=server.port, protocol=2))
    plays(server, "default")


def test_a_client_with_its_own_retries_leaves_no_orphan(
    world: ContractWorld, server: RedisServer, proxy: Proxy, made: Callable[..., Any], ann: Actor
) -> None:
    patient = for_interface(world, redis.retry.Retry, redis.asyncio.retry.Retry)(
        redis.backoff.ConstantBackoff(0.01), 5
    )
    how = {"retry": patient, "retry_on_error": [redis.ConnectionError, redis.TimeoutError]}
    client = made(REDIS_PY, host=proxy.host, port=proxy.port, **how)
    lock = connect_to(world, client).lock(world.name)
    ann.do(ann.do(lock.acquire).release)
    proxy.drop_next_reply()
    grant = ann.do(lock.acquire)
    assert proxy.cuts == 1
    assert [view.id for view in world.eye.claims(world.name)] == [grant.id]
    proxy.drop_next_reply()
    assert ann.do(grant.release) is True
    assert proxy.cuts == 2
    assert world.nothing_left()


def test_a_clients_own_time_out_is_kept(
    world: ContractWorld, server: RedisServer, proxy: Proxy, made: Callable[..., Any], ann: Actor
) -> None:
    client = made(REDIS_PY, host=proxy.host, port=proxy.port, socket_timeout=0.3)
    lock = connect_to(world, client).lock(world.name, ttl=1)
    ann.do(ann.do(lock.acquire).release)
    proxy.black_hole()
    with lasting(0.0, 1.0 + 0.3 + 1.0), pytest.raises(StoreError):  # one second of it for a busy machine
        ann.do(lock.acquire, timeout=0)
    proxy.restore()
    eventually(lambda: world.nothing_left())


@pytest.mark.parametrize("sync_or_async", [THREADS, TASKS])
def test_locks_work_over_a_client_that_sentinels_direct(sync_or_async: str) -> None:
    need("valkey")
    with RedisSentinel() as group, closing(ContractWorld(place_of(group.url), sync_or_async)) as world:
        hosts = [(each.host, each.port) for each in group.sentinels]
        module = for_interface(world, redis.sentinel, redis.asyncio.sentinel)
        ann = world.actor()
        sentinel = ann.do(lambda: module.Sentinel(hosts))
        client = ann.do(lambda: sentinel.master_for(group.name))
        works(world, client)
        locks = connect_to(world, client)
        first = ann.do(locks.lock(world.name).acquire)
        group.fail_over(by_kill=True)
        ann.do(first.release)
        second = ann.do(locks.lock(world.name).acquire)
        assert second.fence > first.fence
        assert ann.do(second.release) is True
        for each in (client, *sentinel.sentinels):
            ann.do(closer(world, each))
