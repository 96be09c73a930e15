"""Servers with different clocks: a new primary that is behind; and the lifetime of an idle name's key."""

import time

import pytest

from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import SET_BACK, eventually
from tests.servers import RedisServer
from tests.support.redis_helpers import key_of

KEEP, SPARE = 60.0, 30.0  # seconds; as in head.lua


def lives_for(server: RedisServer, name: str) -> float:
    """Return the seconds until the key of a name expires; 0 if there is none."""
    return max(0, server.command("PTTL", key_of(name))) / 1000


@pytest.mark.parametrize("ttl", [30, 3600])
def test_the_key_of_an_idle_name_expires_after_its_fence(
    world: ContractWorld, server: RedisServer, ttl: int, ann: Actor, bob: Actor
) -> None:
    lock = world.connect().lock(world.name, ttl=ttl)
    grant = ann.do(lock.acquire)
    assert lives_for(server, world.name) > ttl + KEEP - 1
    assert ann.do(grant.release) is True
    assert KEEP - 1 < lives_for(server, world.name) <= KEEP + SPARE + 30 + SET_BACK
    grant = ann.do(lock.acquire)  # with a waiter it is another script
    waiting = world.in_line(bob.start, lock.acquire)
    assert lives_for(server, world.name) > ttl + KEEP - 1
    assert ann.do(grant.release) is True
    assert bob.do(waiting.result(10).release) is True
    assert KEEP - 1 < lives_for(server, world.name) <= KEEP + SPARE + 30 + SET_BACK


def test_fences_increase_after_the_key_of_an_idle_name_expired(
    world: ContractWorld, server: RedisServer, ann: Actor
) -> None:
    lock = world.connect().lock(world.name)
    fences = []
    for _ in range(3):
        grant = ann.do(lock.acquire)
        fences.append(grant.fence)
        assert ann.do(grant.release) is True
        server.command("PEXPIRE", key_of(world.name), 1)  # as if KEEP were over
        eventually(lambda: server.command("EXISTS", key_of(world.name)) == 0)
    assert fences == sorted(set(fences))
    assert time.time() * 1e6 - fences[-1] < 60e6
