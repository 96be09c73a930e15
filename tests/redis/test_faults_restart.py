"""The server is killed and restarted or stopped, with its data and without them."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from interlock.core.errors import LockLost, StoreError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import eventually, until_renewed
from tests.servers import RedisServer
from tests.support.client_actors import hand_over
from tests.support.redis_helpers import one_after_another, servers_with


def flush(server: RedisServer) -> None:
    """Let it lose all data, but no connection."""
    server.command("FLUSHALL")


def pause(server: RedisServer) -> None:
    """Stop it for less than a lease."""
    server.pause()
    time.sleep(0.8)
    server.resume()


LOSSES = pytest.mark.parametrize("lose", [RedisServer.restart, flush])


@LOSSES
def test_a_forgotten_holder_loses_and_the_next_fence_is_higher(
    world: ContractWorld, server: RedisServer, ann: Actor, bob: Actor, lose: Callable[[RedisServer], None]
) -> None:
    lost: list[Any] = []
    grant = ann.do(world.connect().lock(world.name, ttl=1.5, on_lost=lost.append).acquire)
    lose(server)
    later = bob.do(world.connect().lock(world.name).acquire)
    assert later.fence > grant.fence
    eventually(lambda: lost == [grant], within=2.5)
    with pytest.raises(LockLost):
        grant.check()
    assert ann.do(grant.release) is False
    assert [view.id for view in world.eye.claims(world.name)] == [later.id]
    assert bob.do(later.release) is True


@LOSSES
def test_forgotten_waiters_enter_again_and_get_the_lock_in_turn(
    world: ContractWorld, server: RedisServer, lose: Callable[[RedisServer], None]
) -> None:
    ann, *others = world.actors(4)
    old = ann.do(world.connect().lock(world.name, ttl=1.5).acquire)
    waiting = [each.start(world.connect().lock(world.name).acquire) for each in others]
    world.until_waiting(3)
    lose(server)
    fences = [grant.fence for grant in one_after_another(others, waiting)]
    assert old.fence < min(fences)
    assert fences == sorted(set(fences))
    eventually(lambda: old.lost)
    assert world.nothing_left()


@pytest.mark.parametrize("server", servers_with(persist=True), indirect=True)
@pytest.mark.parametrize("outage", [RedisServer.restart, pause])
def test_an_outage_of_a_persistent_server_loses_nothing(
    world: ContractWorld,
    server: RedisServer,
    locks: Any,
    ann: Actor,
    bob: Actor,
    outage: Callable[[RedisServer], None],
) -> None:
    lost: list[Any] = []
    grant = ann.do(locks.lock(world.name, ttl=3, on_lost=lost.append).acquire)
    waiting = world.in_line(bob.start, locks.lock(world.name).acquire)
    outage(server)
    until_renewed(grant)  # renewed since
    assert not waiting.done()
    hand_over(ann, grant, bob, waiting, 5)
    assert lost == []


@pytest.mark.parametrize("server", servers_with(persist=True), indirect=True)
def test_a_release_while_the_server_is_away_can_be_repeated(
    world: ContractWorld, server: RedisServer, locks: Any, ann: Actor
) -> None:
    grant = ann.do(locks.lock(world.name, ttl=30).acquire)
    server.kill()
    with pytest.raises(StoreError):
        ann.do(grant.release)
    server.start()
    assert ann.do(grant.release) is True
    assert ann.do(locks.claims, world.name) == []
