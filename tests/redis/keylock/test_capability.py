"""Compare-and-delete and renewal: by the server's own commands where it has them, else by Lua."""

import contextlib
from typing import Any

import pytest
import redis

from interlock import StoreError
from interlock.redis import KeyLock
from tests.servers import RedisServer


def unknown(command: str) -> redis.ResponseError:
    """Return a server's error for an unknown command."""
    return redis.ResponseError(f"unknown command '{command}', with args beginning with: ")


class Redis84(redis.Redis):
    """A client that simulates Redis 8.4 or newer, with `DELEX` but no `DELIFEQ`, by scripts in Lua."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Answer as Redis 8.4 does."""
        if args[0] == "DELIFEQ":
            raise unknown("DELIFEQ")
        if args[0] == "DELEX":
            assert args[2] == "IFEQ"
            script = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
            return super().execute_command("EVAL", script, 1, args[1], args[3])
        if args[0] == "SET" and "IFEQ" in args:
            script = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2])"
            assert args[4] == args[2]
            assert args[5] == "PX"
            return super().execute_command("EVAL", script, 1, args[1], args[4], args[6])
        if args[0].startswith("EVAL"):
            raise AssertionError("Redis 8.4 needs no script")
        return super().execute_command(*args, **options)


class Redis6(redis.Redis):
    """A client that simulates Redis 6: `SET` takes neither GET together with NX, nor IFEQ."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Answer as Redis 6 does."""
        if args[0] == "SET" and (("NX" in args and "GET" in args) or "IFEQ" in args):
            raise redis.ResponseError("syntax error")
        if args[0] in ("DELIFEQ", "DELEX"):
            raise unknown(args[0])
        return super().execute_command(*args, **options)


def session(lock: KeyLock) -> None:
    """Use a lock in every way."""
    for _ in range(3):
        assert lock.acquire()
        assert not lock.acquire()
        assert lock.renew()
        assert lock.release()
        assert not lock.release()


def test_a_server_s_own_commands_are_used_where_it_has_them(house: Any) -> None:
    lock = house.lock()
    for _ in range(3):
        house.do(lock.acquire)
        house.do(lock.renew)
        house.do(lock.release)
    if house.server.kind == "valkey":
        assert house.calls("delifeq") == 3
        assert house.calls("eval") == house.calls("get") == 0
        assert house.calls("set") == 6
    else:
        assert house.calls("eval") == 6
        assert house.calls("set") == 4  # once with IFEQ, which it refused


def test_what_the_server_can_do_is_asked_once_for_all_locks_of_a_client(house: Any) -> None:
    client = house.client()
    first = house.lock(client=client)
    house.do(first.acquire)
    house.do(first.release)
    errors = house.eye.info("stats")["total_error_replies"]
    for number in range(5):
        lock = house.lock(key=f"lock:of:{number}", client=client)
        house.do(lock.acquire)
        house.do(lock.release)
    assert house.eye.info("stats")["total_error_replies"] == errors


@pytest.mark.parametrize("kind", [redis.Redis, Redis84, Redis6])
def test_a_lock_works_on_each_generation_of_servers(server: RedisServer, kind: type[redis.Redis]) -> None:
    with kind(host=server.host, port=server.port) as client:
        client.flushall()
        session(KeyLock(client, "lock:1"))


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
def test_a_user_who_may_not_run_scripts_is_served_by_the_server_s_own_commands(house: Any) -> None:
    if house.server.kind == "valkey":
        with user(house, "+set", "+get", "+delifeq") as client:
            session(KeyLock(client, house.key))
        return
    with user(house, "+set", "+get") as client:
        lock = KeyLock(client, house.key)
        assert lock.acquire()
        with pytest.raises(StoreError, match=r"(?s)DELIFEQ.*DELEX.*EVAL.*ACL SETUSER"):
            lock.release()
        house.eye.execute_command("ACL", "SETUSER", "app", "+eval", "+del")
        assert lock.release() is True


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
