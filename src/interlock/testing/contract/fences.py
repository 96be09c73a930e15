"""Fences: strictly increasing for each name, whatever happens between two holders; constant in the grant."""

import itertools
from typing import Any

from interlock.core.claims import LockSpec
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import KINDS, ContractWorld, LockKind


def increasing(fences: list[int]) -> bool:
    """Return True if each is greater than the one before."""
    return all(one < other for one, other in itertools.pairwise(fences))


def test_a_fence_is_greater_than_all_before_it(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    fences: list[int] = []
    for _ in range(30):
        ann.within(lock, lambda grant: fences.append(grant.fence))
    assert increasing(fences)


def test_fences_increase_over_all_kinds_of_one_name(world: ContractWorld, locks: Any, ann: Actor) -> None:
    fences: list[int] = []
    for each in KINDS * 3:
        ann.within(each.make(locks, world.name), lambda grant: fences.append(grant.fence))
    assert increasing(fences)


def test_fences_of_those_who_share_differ_and_increase(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().semaphore(world.name, 10)
    assert increasing([ann.do(lock.acquire).fence for _ in range(10)])


def test_fences_increase_when_leases_end(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    lock = locks.lock(world.name, ttl=0.15, renew=False)
    fences = [actor.do(lock.acquire).fence for actor in (ann, bob) * 3]
    assert increasing(fences)


def test_fences_increase_when_holders_die_or_are_evicted(world: ContractWorld, locks: Any, ann: Actor) -> None:
    fences = []
    for _ in range(3):
        grant = ann.do(locks.lock(world.name).acquire)
        fences.append(grant.fence)
        world.eye.evict(world.name)
        world.stale_claim(LockSpec(world.key(), ttl=0.1))
    assert increasing(fences)


def test_fences_increase_when_all_connections_were_closed(world: ContractWorld, ann: Actor) -> None:
    fences = []
    for _ in range(5):
        locks = world.connect()
        for _ in range(2):
            ann.within(locks.lock(world.name), lambda grant: fences.append(grant.fence))
        ann.do(locks.close)
    assert increasing(fences)


def test_fences_increase_after_hundreds_of_other_names(world: ContractWorld, locks: Any, ann: Actor) -> None:
    fences: list[int] = []

    def others() -> Any:
        names = [world.fresh_name() for _ in range(100)]
        if world.sync_or_async == "threads":
            for name in names:
                locks.lock(name).acquire().release()
            return None

        async def go() -> None:
            for name in names:
                await (await locks.lock(name).acquire()).release()

        return go()

    ann.within(locks.lock(world.name), lambda grant: fences.append(grant.fence))
    for _ in range(4):  # in parts, so that on a slow disk each call keeps its time limit
        ann.do(others)
    ann.within(locks.lock(world.name), lambda grant: fences.append(grant.fence))
    assert increasing(fences)


def test_a_fence_is_fixed_in_the_handle(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    old = ann.do(locks.lock(world.name, ttl=0.2, renew=False).acquire)
    fence = old.fence
    new = bob.do(locks.lock(world.name).acquire)
    assert new.fence > fence
    assert old.fence == fence
    ann.do(old.release)
    ann.do(old.renew)
    assert old.fence == fence
