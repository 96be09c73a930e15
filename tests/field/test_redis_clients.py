"""Unusual servers and clients of Redis: custom connection classes, fakes, no scripts, no subscriptions."""

from typing import Any

import pytest
import redis
import redis.asyncio

import interlock
from tests.servers import RedisServer, need

WITHOUT = '""'


class Own(redis.Connection):
    """A connection class of the program."""


class OwnOfTasks(redis.asyncio.Connection):
    """A connection class of the program, for tasks."""


def own_client() -> Any:
    """Return a client whose connections are of the program's own class."""
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Own))


def own_client_of_tasks() -> Any:
    """As `own_client`, for tasks."""
    return redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(connection_class=OwnOfTasks))


@pytest.mark.parametrize(
    ("connect", "make"), [(interlock.connect, own_client), (interlock.aconnect, own_client_of_tasks)]
)
def test_a_client_with_connections_of_its_own_class_is_refused(connect: Any, make: Any) -> None:
    with pytest.raises(interlock.InvalidArgument, match=r"own class Own.*give the URL"):
        connect(make())


def test_a_fake_server_is_refused() -> None:
    fakeredis = pytest.importorskip("fakeredis")
    with pytest.raises(interlock.InvalidArgument, match="memory://"):
        interlock.connect(fakeredis.FakeRedis())


def test_a_server_whose_scripts_are_switched_off_says_that() -> None:
    need("redis")
    off = {"rename-command EVALSHA": WITHOUT, "rename-command EVAL": WITHOUT}
    with RedisServer("redis", config=off) as server, interlock.connect(server.url) as locks:
        with pytest.raises(interlock.StoreError, match="scripts are switched off") as raised:
            locks.lock("x").acquire(timeout=1)
    assert "Redis 6" not in str(raised.value)


def test_behind_what_knows_no_info_and_no_subscribe_only_waiting_is_refused() -> None:
    need("redis")
    lacks = {"rename-command SUBSCRIBE": WITHOUT, "rename-command INFO": WITHOUT}
    with RedisServer("redis", config=lacks) as server, interlock.connect(server.url) as locks:
        with locks.lock("x"), interlock.connect(server.url) as others:
            with pytest.raises(interlock.StoreError, match="SUBSCRIBE"):
                others.lock("x").acquire(timeout=20)
            assert others.lock("x").acquire(blocking=False) is None
