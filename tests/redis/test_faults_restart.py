"""The server is killed and restarted, with its data and without them."""

from typing import Any

import pytest

from interlock.core.errors import LockLost, StoreError
from interlock.testing.actors import Actor
from interlock.testing.waiting import eventually
from interlock.testing.world import World
from tests.servers import RedisServer
from tests.support.redis_worlds import one_after_another, servers_with


def test_a_holder_learns_that_the_server_has_forgotten_it(world: World, server: RedisServer, ann: Actor) -> None:
    lost: list[Any] = []
    grant = ann.do(world.connect().lock(world.name, ttl=1.5, on_lost=lost.append).acquire)
    server.restart()
    eventually(lambda: grant.lost, within=2.5)
    eventually(lambda: lost == [grant])
    with pytest.raises(LockLost):
        grant.check()
    assert ann.do(grant.release) is False


def test_waiters_go_on_and_get_the_lock_one_after_another(world: World, server: RedisServer) -> None:
    ann, *others = world.actors(4)
    old = ann.do(world.connect().lock(world.name, ttl=1.5).acquire)
    waiting = [each.start(world.connect().lock(world.name).acquire) for each in others]
    world.until_waiting(3)
    server.restart()
    fences = [grant.fence for grant in one_after_another(others, waiting)]
    assert old.fence < min(fences)
    assert fences == sorted(set(fences))
    eventually(lambda: old.lost)
    assert world.nothing_left()


@pytest.mark.parametrize("server", servers_with(persist=True), indirect=True)
def test_nothing_is_lost_by_a_restart_of_a_server_that_keeps_its_data(
    world: World, server: RedisServer, locks: Any, ann: Actor, bob: Actor
) -> None:
    lost: list[Any] = []
    grant = ann.do(locks.lock(world.name, ttl=3, on_lost=lost.append).acquire)
    waiting = bob.start(locks.lock(world.name).acquire)
    eventually(lambda: len(ann.do(locks.claims, world.name)) == 2)
    server.restart()
    before = grant.expires_in
    eventually(lambda: grant.expires_in > before)  # renewed since
    assert not waiting.done()
    assert ann.do(grant.release) is True
    later = waiting.result(5)
    assert later.fence > grant.fence
    assert bob.do(later.release) is True
    assert lost == []


@pytest.mark.parametrize("server", servers_with(persist=True), indirect=True)
def test_a_release_while_the_server_is_away_can_be_repeated(
    world: World, server: RedisServer, locks: Any, ann: Actor
) -> None:
    grant = ann.do(locks.lock(world.name, ttl=30).acquire)
    server.kill()
    with pytest.raises(StoreError):
        ann.do(grant.release)
    server.start()
    assert ann.do(grant.release) is True
    assert ann.do(locks.claims, world.name) == []
