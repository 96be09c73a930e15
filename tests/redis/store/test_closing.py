"""Closing while somebody waits: the waiter is told, and nothing hangs."""

from collections.abc import Iterator

import pytest

import interlock
from interlock.errors import StoreError
from interlock.testing.actors import ThreadActor
from interlock.testing.servers import RedisServer, need
from interlock.testing.waiting import eventually


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
