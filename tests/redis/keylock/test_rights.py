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
def user(house: Any, *rules: str) -> Any:
    """Return a client whose user has only these rights."""
    house.eye.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "+@connection", *rules)
    try:
        with redis.Redis(host=house.server.host, port=house.server.port, username="app", password="secret") as client:
            yield client
    finally:
        house.eye.execute_command("ACL", "DELUSER", "app")


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_a_user_without_eval_gets_the_needed_rights_as_advice(house: Any) -> None:
    with user(house, "+set", "+get") as client:
        lock = KeyLock(client, house.key)
        assert lock.acquire()
        with pytest.raises(StoreError, match=r"(?s)EVAL.*ACL SETUSER"):
            lock.release()
        house.eye.execute_command("ACL", "SETUSER", "app", "+eval", "+del", "+pexpire")
        assert lock.release() is True
        session(lock)


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_a_full_server_still_renews_and_releases(house: Any) -> None:
    client = house.client()
    lock, other = KeyLock(client, house.key), KeyLock(client, "lock:other")
    assert lock.acquire()
    house.eye.pexpire(house.key, 5000)
    house.eye.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreError, match="maxmemory"):
            other.acquire()
        assert lock.renew() is True
        assert house.eye.pttl(house.key) > 10_000
        assert lock.release() is True
    finally:
        house.eye.config_set("maxmemory", "0")
    session(other)
