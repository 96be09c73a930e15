"""Several names together: all or none, in one global order, so that there is no deadlock."""

from typing import Any

import pytest

from interlock.core.errors import LockLost, LockTimeout, NotHeld, StoreError
from interlock.testing.actors import Actor, results
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually, lasting


def names(world: ContractWorld, number: int = 3) -> list[str]:
    """Return a number of unused names."""
    return [world.fresh_name() for _ in range(number)]


def test_all_of_them_are_held_and_released_together(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    parts = names(world)
    grants = ann.do(locks.all(*parts).acquire)
    assert sorted(grant.name for grant in grants) == sorted(parts)
    assert grants.fences == {grant.name: grant.fence for grant in grants}
    assert grants.held is True
    grants.check()
    assert all(bob.do(locks.lock(part).acquire, timeout=0) is None for part in parts)
    assert ann.do(grants.release) is True
    assert ann.do(grants.release) is False
    assert all(world.nothing_left(part) for part in parts)


def test_opposite_orders_do_not_deadlock(world: ContractWorld, locks: Any) -> None:
    one, two, three = names(world)
    box = [0]
    jobs = []
    for order in ((one, two, three), (three, two, one), (two, three, one), (three, one, two)):
        jobs += [
            actor.start_within(locks.all(*order), lambda grants: world.careless_increment(box))
            for actor in world.actors(1)
            for _ in range(20)
        ]
    results(jobs)
    assert box[0] == 80


def test_all_and_single_locks_exclude_each_other(world: ContractWorld, locks: Any) -> None:
    one, two, three = names(world)
    box = [0]
    jobs = []
    for lock in (locks.all(one, two), locks.all(two, three), locks.lock(two)):
        actor = world.actor()
        jobs += [actor.start_within(lock, lambda grants: world.careless_increment(box)) for _ in range(20)]
    results(jobs)
    assert box[0] == 60


def test_a_timeout_leaves_nothing_behind(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    parts = names(world, 4)
    for taken in parts:
        grant = ann.do(locks.lock(taken).acquire)
        for timeout in (0, 0.05):
            assert bob.do(locks.all(*parts).acquire, timeout=timeout) is None
        with pytest.raises(LockTimeout):
            bob.within(locks.all(*parts, timeout=0.01), print)
        assert [len(world.eye.claims(part)) for part in parts] == [int(part == taken) for part in parts]
        ann.do(grant.release)


def test_the_timeout_is_one_for_all(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    parts = sorted(names(world))
    grants = [ann.do(locks.lock(part).acquire) for part in parts]
    with lasting(RENEWED, 1.0):
        waiting = bob.start(locks.all(*parts).acquire, timeout=RENEWED)
        for grant in grants[:2]:
            world.until_waiting(1, grant.name)
            ann.do(grant.release)
        assert waiting.result(20) is None


def test_the_loss_of_one_is_the_loss_of_all(world: ContractWorld, locks: Any, ann: Actor) -> None:
    parts = names(world)
    with pytest.raises(LockLost, match=parts[1]):
        ann.within(locks.all(*parts), lambda grants: world.eye.evict(parts[1]))
    assert all(world.nothing_left(part) for part in parts)


def test_the_grants_know_the_loss_of_one(world: ContractWorld, locks: Any, ann: Actor) -> None:
    parts = names(world)
    grants = ann.do(locks.all(*(locks.lock(part, ttl=RENEWED) for part in parts)).acquire)
    world.eye.evict(parts[2])
    eventually(lambda: grants.lost)
    assert grants.held is False
    with pytest.raises(LockLost):
        grants.check()
    assert ann.do(grants.release) is False
    assert all(world.nothing_left(part) for part in parts)


def test_release_owned_and_locked_of_several(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    parts = names(world)
    lock = locks.all(*parts)
    assert ann.do(lock.locked) is False
    ann.do(lock.acquire)
    assert [ann.do(lock.owned), bob.do(lock.owned), bob.do(lock.locked)] == [True, False, True]
    with pytest.raises(NotHeld):
        bob.do(lock.release)
    ann.do(lock.release)
    assert [ann.do(lock.owned), ann.do(lock.locked)] == [False, False]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["the first", "the middle", "the last"])
def test_a_release_that_failed_for_some_can_be_tried_again(world: ContractWorld, which: int, ann: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    parts = sorted(names(world))
    grants = ann.do(locks.all(*parts).acquire)
    failing.names.add(parts[which])
    failing.broken.add("leave")
    with pytest.raises(StoreError, match="by order of the test"):
        ann.do(grants.release)
    assert [world.nothing_left(part) for part in parts] == [part != parts[which] for part in parts]
    failing.broken.clear()
    ann.do(grants.release)
    assert all(world.nothing_left(part) for part in parts)
