"""Kinds that share: readers, semaphores, and claims of one name that disagree about its kind."""

from collections.abc import Generator
from typing import Any

import pytest

from interlock.testing.actors import Actor, results
from interlock.testing.faults import Stepwise
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import eventually


def test_readers_share_and_a_writer_has_it_alone(world: ContractWorld, ann: Actor, bob: Actor, eve: Actor) -> None:
    rw = world.connect().rwlock(world.name)
    readers = [ann.do(rw.read().acquire), bob.do(rw.read().acquire, timeout=0)]
    assert None not in readers
    assert eve.do(rw.write().acquire, timeout=0) is None
    for grant in readers:
        ann.do(grant.release)
    writer = eve.do(rw.write().acquire, timeout=0)
    assert writer is not None
    assert ann.do(rw.read().acquire, timeout=0) is None
    assert bob.do(rw.write().acquire, timeout=0) is None


def test_a_semaphore_admits_as_many_units_as_it_has_permits(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    one, two = locks.semaphore(world.name, 5), locks.semaphore(world.name, 5, units=2)
    grants = [ann.do(each.acquire, timeout=0) for each in (two, one, two)]
    assert None not in grants
    assert bob.do(one.acquire, timeout=0) is None
    ann.do(grants[1].release)
    assert bob.do(two.acquire, timeout=0) is None
    last = bob.do(one.acquire, timeout=0)
    assert last is not None
    assert sum(view.units for view in world.holders()) == 5


def test_claims_that_disagree_are_bound_by_the_smallest_capacity(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    many = locks.semaphore(world.name, 5)
    for strict in (locks.lock(world.name), locks.semaphore(world.name, 1)):
        grant = ann.do(strict.acquire)
        assert bob.do(many.acquire, timeout=0) is None
        ann.do(grant.release)
        grant = ann.do(many.acquire)
        assert bob.do(strict.acquire, timeout=0) is None
        ann.do(grant.release)


def test_when_the_smallest_capacity_leaves_the_next_one_counts(world: ContractWorld, locks: Any) -> None:
    ann, bob, *others = world.actors(4)
    three, two = locks.semaphore(world.name, 3), locks.semaphore(world.name, 2)
    assert ann.do(three.acquire) is not None
    strict = bob.do(two.acquire)
    waiting = [world.in_line(other.start, three.acquire) for other in others]
    assert bob.do(strict.release) is True
    assert all(grant.held for grant in results(waiting))
    assert [view.capacity for view in world.holders()] == [3, 3, 3]


@pytest.mark.parametrize("permits", [2, 3])
def test_never_more_holders_than_permits(world: ContractWorld, permits: int) -> None:
    lock = world.connect(Stepwise).semaphore(world.name, permits)
    inside: list[object] = []
    most: list[int] = []

    def body(grant: object) -> Generator[Any, Any, None]:
        inside.append(grant)
        most.append(len(inside))
        yield from world.result(world.pause())
        inside.remove(grant)

    jobs = [actor.start_within(lock, world.function(body)) for actor in world.actors(6) for _ in range(10)]
    results(jobs)
    assert max(most) <= permits


def test_waiting_readers_get_in_together(world: ContractWorld) -> None:
    rw = world.connect().rwlock(world.name)
    ann, *readers = world.actors(5)
    gate = world.gate()
    writer = ann.do(rw.write().acquire)
    jobs = [reader.start_within(rw.read(), gate.wait) for reader in readers]
    world.until_waiting(4)
    ann.do(writer.release)
    eventually(lambda: len(world.holders()) == 4)
    gate.open()
    results(jobs)
