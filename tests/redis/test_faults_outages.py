"""Acquires that begin while the server is unreachable wait for their own time-out, and no longer."""

from contextlib import closing
from typing import Any

import pytest

from interlock.core.errors import LockTimeout, StoreError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import eventually, lasting, throughout
from tests.servers import RedisCluster, RedisSentinel, RedisServer, need
from tests.support.redis_helpers import key_of, place_of, servers_with

AWAY = 1.0  # seconds
WAIT_LIMIT = 15.0  # seconds of the acquires that must succeed
LATE = 1.0  # seconds on a busy machine
ONE = pytest.mark.parametrize("server", servers_with()[:1], indirect=True)


def starting(world: ContractWorld, locks: Any, *names: str, **how: Any) -> list[Any]:
    """Let an actor acquire each name, with a time-out or without."""
    return [world.actor().start(locks.lock(name, ttl=2).acquire, **how) for name in names]


def used(world: ContractWorld, locks: Any) -> Any:
    """Return a connection that has already been used."""
    ann = world.actor()
    ann.do(ann.do(locks.lock(world.fresh_name()).acquire).release)
    return locks


def test_an_acquire_in_an_outage_waits_for_the_server(world: ContractWorld, server: RedisServer) -> None:
    known, fresh, third = used(world, world.connect()), world.connect(), used(world, world.connect())
    names = [world.fresh_name() for _ in range(3)]
    server.kill()
    coming = [
        *starting(world, known, names[0], timeout=WAIT_LIMIT),
        *starting(world, fresh, names[1], timeout=WAIT_LIMIT),
        *starting(world, third, names[2]),
    ]
    throughout(AWAY, lambda: not any(each.done() for each in coming))
    server.start()
    assert [each.result(WAIT_LIMIT).name for each in coming] == names
    assert all(len(world.holders(name)) == 1 for name in names)


@ONE
def test_an_acquire_waits_for_a_stopped_server(world: ContractWorld, server: RedisServer) -> None:
    locks = used(world, world.connect())
    server.pause()
    (coming,) = starting(world, locks, world.name, timeout=WAIT_LIMIT)
    throughout(5.0, lambda: not coming.done())  # longer than a reply is waited for, twice
    server.resume()
    grant = coming.result(WAIT_LIMIT)
    assert [view.id for view in world.holders()] == [grant.id]
    assert not world.waiters()


@ONE
def test_an_acquire_waits_no_longer_than_its_time_and_says_why(
    world: ContractWorld, server: RedisServer, ann: Actor
) -> None:
    locks = used(world, world.connect())
    server.kill()
    for timeout, least in ((0, 0.0), (1.5, 1.5)):
        with lasting(least, LATE), pytest.raises(StoreError, match=str(server.port)):
            ann.do(locks.lock(world.name).acquire, timeout=timeout)
    with lasting(0.0, 0.3 + LATE), pytest.raises(StoreError, match=str(server.port)) as caught:
        ann.within(locks.lock(world.name, timeout=0.3), lambda grant: None)
    assert not isinstance(caught.value, LockTimeout)
    server.start()
    ann.do(ann.do(locks.lock(world.name).acquire).release)
    assert world.nothing_left()


@ONE
def test_a_wrong_address_is_an_error_soon_without_a_time(
    world: ContractWorld, server: RedisServer, locks: Any
) -> None:
    server.kill()
    with lasting(0.0, 2.5 + LATE), pytest.raises(StoreError, match=str(server.port)):
        world.actor().do(locks.lock(world.name).acquire)


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_new_acquires_wait_for_the_master_that_sentinel_promotes(sync_or_async: str) -> None:
    need("valkey")
    with RedisSentinel("valkey") as group:
        with closing(ContractWorld(place_of(group.url), sync_or_async)) as world:
            known, fresh = used(world, world.connect()), world.connect()
            names = [world.fresh_name() for _ in range(4)]
            group.master.kill()
            coming = [
                *starting(world, known, *names[:2], timeout=60),
                *starting(world, fresh, *names[2:], timeout=60),
            ]
            assert [each.result(60).name for each in coming] == names


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_new_acquires_wait_for_a_node_of_the_cluster(sync_or_async: str) -> None:
    need("redis")
    with RedisCluster(3, "redis") as cluster:
        with closing(ContractWorld(place_of(cluster.url), sync_or_async)) as world:
            locks = used(world, world.connect())
            names = [world.fresh_name() for _ in range(12)]
            dead = cluster.nodes[1]
            theirs = [name for name in names if cluster.node_of(key_of(name)) is dead]
            assert theirs
            dead.kill()
            eventually(lambda: "cluster_state:fail" in cluster.nodes[0].command("CLUSTER", "INFO"))
            coming = starting(world, locks, *names, timeout=60)
            throughout(AWAY, lambda: not any(each.done() for each in coming))
            dead.start()
            assert [each.result(60).name for each in coming] == names
