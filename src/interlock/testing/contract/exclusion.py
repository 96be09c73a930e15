"""Exclusion: critical sections that lose an update if two of them overlap."""

from collections.abc import Callable
from typing import Any

import pytest

from interlock.testing.actors import Actor, results
from interlock.testing.faults import Stepwise
from interlock.testing.store_fixture import KINDS, ContractWorld, LockKind

EXCLUDING = [each for each in KINDS if not each.shares]
ACTORS, SECTIONS = 6, 12


@pytest.mark.parametrize("kind", EXCLUDING, ids=lambda kind: kind.name)
def test_exclusion_loses_no_update_of_an_unprotected_counter(world: ContractWorld, kind: LockKind) -> None:
    lock = kind.make(world.connect(), world.name)
    assert count_with(world, lambda: lock) == ACTORS * SECTIONS


def test_exclusion_between_connections_loses_no_update(world: ContractWorld) -> None:
    assert count_with(world, lambda: world.connect().lock(world.name)) == ACTORS * SECTIONS


def test_threads_and_tasks_exclude_each_other(world_of_threads: ContractWorld, world_of_tasks: ContractWorld) -> None:
    box = [0]
    name = world_of_threads.name
    jobs = []
    for world in (world_of_threads, world_of_tasks):
        lock = world.connect().lock(name)
        for actor in world.actors(3):
            jobs += [
                actor.start_within(lock, lambda grant, world=world: world.careless_increment(box))  # type: ignore[misc]
                for _ in range(SECTIONS)
            ]
    results(jobs)
    assert box[0] == len(jobs)


def test_of_those_who_try_at_once_exactly_one_gets_it(world: ContractWorld, kind: LockKind) -> None:
    locks = world.connect(Stepwise)
    for _ in range(3):
        name = world.fresh_name()
        lock = locks.lock(name)
        grants = results([actor.start(lock.acquire, timeout=0) for actor in world.actors(4)])
        assert len([grant for grant in grants if grant is not None]) == 1
        assert len(world.holders(name)) == 1
        assert not world.waiters(name)


def test_a_kind_and_its_rival_exclude_each_other(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    for one, other in ((kind.make, kind.rival), (kind.rival, kind.make)):
        grant = ann.do(one(locks, world.name).acquire)
        assert bob.do(other(locks, world.name).acquire, timeout=0) is None
        assert ann.do(grant.release) is True
        rival = bob.do(other(locks, world.name).acquire, timeout=0)
        assert rival is not None
        bob.do(rival.release)


def count_with(world: ContractWorld, lock: Callable[[], Any]) -> int:
    """Let each of several actors run many critical sections; return the final count."""
    box = [0]
    jobs = []
    for actor in world.actors(ACTORS):
        own = lock()
        jobs += [actor.start_within(own, lambda grant: world.careless_increment(box)) for _ in range(SECTIONS)]
    results(jobs)
    assert world.nothing_left()
    return box[0]
