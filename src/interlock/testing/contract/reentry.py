"""Re-entrant locks: a count on top of one claim, per thread or task, that dies with the lease."""

from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually


def test_its_holder_gets_it_again_with_the_same_claim_and_fence(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().rlock(world.name)
    grants = [ann.do(lock.acquire, timeout=0) for _ in range(3)]
    assert None not in grants
    assert len({(grant.id, grant.fence) for grant in grants}) == 1
    assert len(world.holders()) == 1


def test_only_the_last_release_gives_it_back(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    lock = world.connect().rlock(world.name)
    for _ in range(3):
        ann.do(lock.acquire)
    for _ in range(2):
        ann.do(lock.release)
        assert bob.do(lock.acquire, timeout=0) is None
        assert ann.do(lock.owned) is True
    ann.do(lock.release)
    assert ann.do(lock.owned) is False
    assert world.nothing_left()
    with pytest.raises(NotHeld):
        ann.do(lock.release)


def test_other_threads_and_tasks_are_not_admitted(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    ann.do(locks.rlock(world.name).acquire)
    assert bob.do(locks.rlock(world.name).acquire, timeout=0) is None
    assert bob.do(locks.rlock(world.name).owned) is False
    with pytest.raises(NotHeld):
        bob.do(locks.rlock(world.name).release)


def test_two_lock_objects_of_one_connection_are_one_lock(world: ContractWorld, locks: Any, ann: Actor) -> None:
    first = ann.do(locks.rlock(world.name).acquire)
    second = ann.do(locks.rlock(world.name).acquire, timeout=0)
    assert second is not None
    assert second.fence == first.fence
    assert ann.do(first.release) is True
    assert len(world.holders()) == 1
    assert ann.do(second.release) is True
    assert world.nothing_left()


def test_an_exclusive_lock_of_the_same_name_is_not_re_entered(world: ContractWorld, locks: Any, ann: Actor) -> None:
    ann.do(locks.rlock(world.name).acquire)
    assert ann.do(locks.lock(world.name).acquire, timeout=0) is None


def test_releasing_a_handle_twice_does_not_release_another(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().rlock(world.name)
    first, second = ann.do(lock.acquire), ann.do(lock.acquire)
    assert [ann.do(first.release) for _ in range(3)] == [True, False, False]
    assert second.held is True
    assert len(world.holders()) == 1
    assert ann.do(second.release) is True
    assert ann.do(second.release) is False
    assert world.nothing_left()


def test_the_count_dies_with_the_lease(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    lock = world.connect().rlock(world.name, ttl=RENEWED, renew=False)
    old = [ann.do(lock.acquire) for _ in range(3)]
    eventually(lambda: old[0].lost)
    assert [grant.lost for grant in old] == [True] * 3
    other = bob.do(lock.acquire, timeout=5)
    assert ann.do(lock.acquire, timeout=0) is None
    assert [ann.do(grant.release) for grant in old] == [False] * 3
    assert other.fence > old[0].fence


def test_a_loss_inside_nested_bodies_is_told_by_both(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().rlock(world.name)
    ann.do(lock.acquire)
    with pytest.raises(LockLost):
        ann.within(lock, lambda grant: [world.eye.evict(world.name), grant.renew()][1])
    with pytest.raises(NotHeld):
        ann.do(lock.release)


def test_a_thread_or_task_that_ended_is_not_taken_for_another(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().rlock(world.name)
    grant = ann.do(lock.acquire)
    ann.end()
    for _ in range(5):
        bob = world.actor()
        assert bob.do(lock.acquire, timeout=0) is None
    assert bob.do(grant.release) is True
    assert world.nothing_left()
