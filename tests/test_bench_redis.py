"""The scenarios on Redis: that they measure what they say, never how fast anything is."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.contestants import redis_peers
from bench.contestants.redis_raw import BlpopToken, SetNxBlpop
from bench.model import Place
from interlock.testing.waiting import throughout
from tests.servers import RedisServer

SOON = 20.0
BLOCKING: dict[str, Any] = {
    "raw BLPOP token": BlpopToken,
    "raw SET NX + BLPOP": SetNxBlpop,
    **{peer.name: redis_peers.one(peer.opener) for peer in redis_peers.PEERS},
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer("valkey") as started:
        yield started


@pytest.fixture
def place(server: RedisServer, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as closing:
        yield Place(tmp_path, "bench.lock", {"url": server.url}, closing)


@pytest.mark.parametrize("name", list(BLOCKING))
def test_a_contestant_that_waits_excludes_and_is_let_in_after_the_release(name: str, place: Place) -> None:
    mine, yours = BLOCKING[name](place), BLOCKING[name](place)
    order: list[str] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        yours.acquire()
        order.append("had")
        yours.release()

    mine.acquire()
    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert waiting.wait(SOON)
    throughout(0.05, lambda: order == [])
    order.append("given back")
    mine.release()
    waiter.join(SOON)
    assert order == ["given back", "had"]
