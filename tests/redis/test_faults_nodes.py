"""Many leases on a Cluster that is 10 ms away, while one of its nodes is stopped."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import Stalls, throughout
from tests.servers import DistantCluster, RedisCluster, RedisServer, need, serving
from tests.support.redis_helpers import key_of, place_of

LEASES = 500
LATENCY = 0.01  # seconds
TTL = 6.0
LATE = 0.5  # seconds after the deadline until a loss is reported: a busy machine's delay, less than any time-out
ROUNDS = 1.5  # leases that the others are watched for


@pytest.fixture
def distant(request: pytest.FixtureRequest) -> Iterator[DistantCluster]:
    """A Cluster of three nodes behind proxies."""
    yield from serving(request.param, lambda: DistantCluster(LATENCY, kind=request.param))


class Holders:
    """Holders of many locks, and the times at which they learned of a loss.

    Args:
        world: where they live.
        leases: how many locks.
        ttl: of each.
    """

    def __init__(self, world: ContractWorld, leases: int, ttl: float) -> None:
        locks = world.connect()
        self.told: dict[str, float] = {}
        names = [world.fresh_name() for _ in range(leases)]
        actors = world.actors(20)
        coming = [
            actors[number % len(actors)].start(locks.lock(name, ttl=ttl, on_lost=self._note).acquire)
            for number, name in enumerate(names)
        ]
        self.grants: list[Any] = [each.result(30) for each in coming]

    def _note(self, grant: Any) -> None:
        self.told[grant.name] = time.monotonic()

    def of(self, cluster: DistantCluster, node: RedisServer) -> set[str]:
        """Return the names that live on a node."""
        return {grant.name for grant in self.grants if cluster.node_of(key_of(grant.name)) is node}

    def late(self, machine: Stalls) -> float:
        """Return how many seconds after its deadline the last holder learned of its loss."""
        lost = [grant for grant in self.grants if grant.name in self.told]
        return max(machine.between(grant._deadline, self.told[grant.name]) for grant in lost)


@pytest.mark.parametrize(
    ("distant", "sync_or_async"), [("valkey", "threads"), ("redis", "tasks")], indirect=["distant"]
)
def test_a_stopped_node_loses_only_its_own_leases_on_time(distant: DistantCluster, sync_or_async: str) -> None:
    world = ContractWorld(place_of(distant.url), sync_or_async)
    dead = distant.cluster.nodes[1]
    try:
        holders = Holders(world, LEASES, TTL)
        gone = holders.of(distant, dead)
        assert LEASES / 5 < len(gone) < LEASES / 2
        with Stalls() as machine:
            dead.pause()
            ended = time.monotonic()
            throughout(ROUNDS * TTL, lambda: holders.told.keys() <= gone)
        assert holders.told.keys() == gone
        assert machine.between(ended, max(holders.told.values())) < TTL + LATE
        assert holders.late(machine) < LATE
        assert sum(grant.held for grant in holders.grants) == LEASES - len(gone)
    finally:
        dead.resume()
        for proxy in distant.proxies:
            proxy.delay(0.0)
        world.close()


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_moving_a_slot_costs_no_lease_of_another_slot(sync_or_async: str) -> None:
    need("valkey")
    with RedisCluster(3) as cluster:
        with closing(ContractWorld(place_of(cluster.url), sync_or_async)) as world:
            holders = Holders(world, 100, TTL)
            moved = holders.grants[0].name
            with cluster.moving(key_of(moved)):
                throughout(1.2 * TTL, lambda: holders.told.keys() <= {moved})
            assert sum(grant.held for grant in holders.grants) >= 99
