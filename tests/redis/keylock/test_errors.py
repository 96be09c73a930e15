"""Bad arguments and bad servers: each raises a clear error, and no call hangs."""

import socket
from typing import Any

import pytest
import redis
import redis.asyncio

from interlock import InvalidArgument, StoreError
from interlock.redis import KeyLock
from tests.servers import RedisServer


@pytest.mark.parametrize("ttl", [0, -1, 0.01, float("nan"), float("inf"), True, "30", 10**12])
def test_a_time_limit_out_of_range_is_refused(env: Any, ttl: Any) -> None:
    with pytest.raises(InvalidArgument, match="ttl"):
        env.lock(ttl=ttl)
    with pytest.raises(InvalidArgument, match="ttl"):
        env.do(env.lock("IdentityLock").acquire, "me", ttl)


@pytest.mark.parametrize("key", ["", b"", None, 7, "\ud800"])
@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "IdentityLock", "ClientLock"])
def test_a_key_that_is_none_is_refused(env: Any, key: Any, name: str) -> None:
    kind = type(env.lock(name))
    with pytest.raises(InvalidArgument, match="key"):
        env.call(kind, env.client(), key)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"blocking": 5}, "Did you mean timeout=5"),
        ({"blocking": None}, "blocking must be True or False"),
        ({"blocking": False, "timeout": 5}, "contradict each other"),
        ({"timeout": -2}, "must not be negative"),
        ({"timeout": "5"}, "number of seconds"),
        ({"timeout": float("nan")}, "number of seconds"),
    ],
)
def test_contradictions_and_other_types_are_refused(env: Any, arguments: dict[str, Any], said: str) -> None:
    for name in ("KeyLock", "ReentrantKeyLock"):
        with pytest.raises(InvalidArgument, match=said):
            env.do(env.lock(name).acquire, **arguments)
    assert env.calls("set") == 0


@pytest.mark.parametrize("identity", ["", b"", None, 7, "\ud800"])
@pytest.mark.parametrize("method", ["acquire", "release", "owned"])
def test_an_identity_that_is_none_is_refused(env: Any, identity: Any, method: str) -> None:
    with pytest.raises(InvalidArgument, match="identity"):
        env.do(getattr(env.lock("IdentityLock"), method), identity)


def test_a_key_of_another_type_is_a_clear_error(env: Any) -> None:
    env.eye.rpush(env.key, "something else")
    lock, identity = env.lock(), env.lock("IdentityLock")
    assert env.do(lock.acquire) is False
    for method in (lock.locked, identity.locked):
        with pytest.raises(StoreError, match="Another program uses the key") as caught:
            env.do(method)
        assert isinstance(caught.value.__cause__, redis.ResponseError)
        assert env.key in str(caught.value)
    with pytest.raises(StoreError, match="Another program uses the key"):
        env.do(identity.release, "me")
    assert env.eye.lrange(env.key, 0, -1) == ["something else"]


def test_a_server_that_is_not_there_is_a_clear_error(env: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        client = env.client(port=taken.getsockname()[1], retry=env.retry("redis", 0))
        for method in (env.lock(client=client).acquire, env.lock(client=client).locked):
            with pytest.raises(StoreError, match="is unreachable"):
                env.do(method)
        for method in ("acquire", "release"):
            with pytest.raises(StoreError, match="is unreachable"):
                env.do(getattr(env.lock("IdentityLock", client=client), method), "me")


def test_a_wrong_password_is_a_clear_error(env: Any) -> None:
    client = env.client(username="nobody", password="wrong", retry=env.retry("redis", 0))
    with pytest.raises(StoreError, match="User or password is wrong") as caught:
        env.do(env.lock(client=client).acquire)
    assert isinstance(caught.value.__cause__, redis.AuthenticationError)
    assert "wrong:" not in str(caught.value)


def test_a_read_only_replica_is_a_clear_error(own_server: RedisServer) -> None:
    with RedisServer(own_server.kind) as primary:
        with redis.Redis(host=own_server.host, port=own_server.port) as client:
            lock = KeyLock(client, "lock:1")
            lock.acquire()
            client.execute_command("REPLICAOF", primary.host, primary.port)
            for method in (KeyLock(client, "lock:2").acquire, lock.release):
                with pytest.raises(StoreError, match="Connect to the primary"):
                    method()


def test_an_empty_pool_is_a_clear_error(server: RedisServer) -> None:
    pool = redis.ConnectionPool(host=server.host, port=server.port, max_connections=1)
    with redis.Redis(connection_pool=pool) as client:
        taken = pool.get_connection()
        with pytest.raises(StoreError, match="max_connections"):
            KeyLock(client, "lock:1").acquire()
        pool.release(taken)
    pool.disconnect()


def test_locks_say_what_they_are(env: Any) -> None:
    lock = env.lock(key="lock:1")
    assert repr(lock) == f"<{type(lock).__name__} 'lock:1'>"
    assert lock.key == env.lock("IdentityLock", key="lock:1").key == "lock:1"
    assert "'lock:1'" in repr(env.lock("IdentityLock", key="lock:1"))
    assert env.do(lambda: lock.expires_in) == 0.0
