"""Every client that a program may pass: both libraries and protocols, decoding or not, Clusters."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from interlock import InvalidArgument, StoreError
from interlock.redis import (
    AsyncClientLock,
    AsyncKeyLock,
    AsyncReentrantKeyLock,
    ClientLock,
    IdentityLock,
    KeyLock,
    ReentrantKeyLock,
)
from tests.servers import RedisCluster, RedisServer


@pytest.mark.parametrize("decode_responses", [False, True], ids=["bytes", "str"])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_a_lock_works_with_each_client(env: Any, library: str, protocol: int, decode_responses: bool) -> None:
    client = env.client(library, protocol=protocol, decode_responses=decode_responses)
    lock, again = env.lock(client=client), env.lock("ReentrantKeyLock", client=client)
    for acquired, token in ((lock, lambda: lock.token), (again, lambda: again.token)):
        assert env.do(acquired.acquire)
        assert env.do(acquired.owned)
        assert env.do(acquired.locked)
        assert env.do(acquired.renew)
        assert env.eye.get(env.key) == env.do(token)
        assert env.do(acquired.release)
        assert not env.do(acquired.locked)
    identity = env.lock("IdentityLock", client=client)
    assert env.do(identity.acquire, "mine")
    assert env.do(identity.owned, "mine")
    assert not env.do(identity.release, "other")
    assert env.do(identity.release, "mine")
    plug = env.lock("ClientLock", client=client, timeout=10)
    assert env.do(plug.acquire)
    assert env.do(plug.extend, 10)
    assert env.do(plug.extend, 10, replace_ttl=True)
    assert env.do(plug.reacquire)
    assert env.do(plug.owned)
    env.do(plug.release)
    assert not env.eye.exists(env.key)


@pytest.mark.parametrize("how", ["unix socket", "one connection"])
def test_a_client_of_another_kind_serves(server: RedisServer, how: str) -> None:
    there: dict[str, Any] = {"host": server.host, "port": server.port, "single_connection_client": True}
    with redis.Redis(**({"unix_socket_path": server.socket} if how == "unix socket" else there)) as client:
        client.flushall()
        with KeyLock(client, "lock:1") as lock:
            assert lock.owned()


@pytest.mark.parametrize("kind", [redis.RedisCluster, valkey.ValkeyCluster])
def test_a_cluster_serves(cluster: RedisCluster, kind: Any) -> None:
    client = kind(host="127.0.0.1", port=cluster.nodes[0].port)
    for number in range(6):  # on several nodes
        key = f"lock:{kind.__name__}:{number}"
        lock = KeyLock(client, key)
        assert [lock.acquire(), lock.acquire(), lock.renew(), lock.release(), lock.locked()] == [1, 0, 1, 1, 0]
        again = ReentrantKeyLock(client, key)
        assert [again.acquire(), ReentrantKeyLock(client, key).acquire()] == [True, True]
        assert [again.release(), again.locked(), again.release(), again.locked()] == [True, True, True, False]
        with client.lock(key, timeout=10, lock_class=ClientLock) as plug:
            assert plug.extend(5)
            assert plug.owned()
    client.close()


@pytest.mark.parametrize("kind", [redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster])
def test_a_cluster_serves_tasks(cluster: RedisCluster, kind: Any) -> None:
    async def session() -> None:
        client = kind(host="127.0.0.1", port=cluster.nodes[0].port)
        for number in range(6):
            key = f"lock:tasks:{kind.__module__}:{number}"
            lock = AsyncKeyLock(client, key)
            assert await lock.acquire()
            assert not await lock.acquire()
            assert await lock.renew()
            assert await lock.release()
            again = AsyncReentrantKeyLock(client, key)
            assert await again.acquire()
            assert await AsyncReentrantKeyLock(client, key).acquire()
            assert await again.release()
            assert await again.locked()
            assert await again.release()
            async with client.lock(key, timeout=10, lock_class=AsyncClientLock) as plug:
                assert await plug.extend(5)
        await client.aclose()

    asyncio.run(session())


def test_a_plain_client_of_a_cluster_is_told_to_take_another(cluster: RedisCluster) -> None:
    wrong = next(node for node in cluster.nodes if node is not cluster.node_of("lock:1"))
    with redis.Redis(host="127.0.0.1", port=wrong.port) as client:
        with pytest.raises(StoreError, match="a client for Clusters"):
            KeyLock(client, "lock:1").acquire()


@pytest.mark.parametrize("library", [redis, valkey])
@pytest.mark.parametrize("kind", [KeyLock, ReentrantKeyLock, IdentityLock, ClientLock])
def test_a_client_of_the_wrong_colour_is_refused(library: Any, kind: Any) -> None:
    client = library.asyncio.client.StrictRedis() if library is redis else valkey.asyncio.Valkey()
    with pytest.raises(InvalidArgument, match=r"is a client for asyncio\. Pass it to a lock like AsyncKeyLock"):
        kind(client, "lock:1")


def test_a_pipeline_and_other_things_are_refused() -> None:
    with redis.Redis() as client:
        with pytest.raises(InvalidArgument, match="A pipeline replies too late"):
            KeyLock(client.pipeline(), "lock:1")
        with pytest.raises(InvalidArgument, match=r"client must be a client such as redis\.Redis\(\)"):
            KeyLock(client.pubsub(), "lock:1")
        for thing in ("redis://localhost", None, client.connection_pool):
            with pytest.raises(InvalidArgument, match="client must be"):
                KeyLock(thing, "lock:1")


def test_no_client_library_is_imported() -> None:
    code = "import interlock.redis, sys; assert not {'redis', 'valkey', 'hiredis'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
