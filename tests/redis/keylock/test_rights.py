"""What a user may do, and a server that is full."""

import contextlib
from typing import Any

import pytest
import redis

from interlock import StoreError
from interlock.redis import KeyLock


def session(lock: KeyLock) -> None:
    """Use a lock in every way."""
    for _ in range(3):
        assert lock.acquire()
        assert not lock.acquire()
        assert lock.renew()
        assert lock.release()
        assert not lock.release()


@contextlib.contextmanager
def user(env: Any, *rules: str) -> Any:
    """Return a client whose user has only these rights."""
    env.eye.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "+@connection", *rules)
    try:
        with redis.Redis(host=env.server.host, port=env.server.port, username="app", password="secret") as client:
            yield client
    finally:
        env.eye.execute_command("ACL", "DELUSER", "app")


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
def test_a_user_without_eval_gets_the_needed_rights_as_advice(env: Any) -> None:
    with user(env, "+set", "+get") as client:
        lock = KeyLock(client, env.key)
        assert lock.acquire()
        with pytest.raises(StoreError, match=r"(?s)EVAL.*ACL SETUSER"):
            lock.release()
        env.eye.execute_command("ACL", "SETUSER", "app", "+eval", "+del", "+pexpire")
        assert lock.release() is True
        session(lock)


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
def test_a_full_server_still_renews_and_releases(env: Any) -> None:
    client = env.client()
    lock, other = KeyLock(client, env.key), KeyLock(client, "lock:other")
    assert lock.acquire()
    env.eye.pexpire(env.key, 5000)
    env.eye.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreError, match="maxmemory"):
            other.acquire()
        assert lock.renew() is True
        assert env.eye.pttl(env.key) > 10_000
        assert lock.release() is True
    finally:
        env.eye.config_set("maxmemory", "0")
    session(other)
