"""The scripts are `core.line` in another language: random steps give the same answers on both."""

from collections.abc import Iterator

import pytest

from interlock.client.connect import open_store
from interlock.runtime import clock
from interlock.stores.memory import MemoryStore, Space
from interlock.testing.waiting import eventually
from tests.servers import RedisServer, need
from tests.servers.clock import Stepped
from tests.support.line_steps import Side, play

GAMES = 40


class SteppedRedisServer(Stepped, RedisServer):
    """A server whose clock can be set."""


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[SteppedRedisServer]:
    need(request.param)
    with SteppedRedisServer(request.param) as server:
        yield server


@pytest.mark.parametrize("game", range(GAMES))
def test_the_same_steps_give_the_same_answers(server: SteppedRedisServer, game: int) -> None:
    ahead = 0.0

    def pass_time(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds
        server.step(seconds)
        eventually(lambda: int(server.command("TIME")[0]) - clock.time_of_day() > server.ahead - 1.0)

    space = MemoryStore(Space(lambda: clock.now() + ahead))
    store = open_store(server.url)
    reference, other = Side([space.queue(), space.queue()]), Side([store.queue(), store.queue()])
    try:
        play(game, reference, other, pass_time)
    finally:
        for queue in other.queues:
            queue.close()
