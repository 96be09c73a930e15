"""Fences: strictly increasing per name, whatever happens between two holders; fixed in the handle."""

import itertools
from typing import Any

from interlock.core.claims import LockSpec
from interlock.testing.world import KINDS, Kind, World


def increasing(fences: list[int]) -> bool:
    """Tell whether each is greater than the one before."""
    return all(one < other for one, other in itertools.pairwise(fences))


def test_a_fence_is_greater_than_all_before_it(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    fences: list[int] = []
    for _ in range(30):
        ann.within(lock, lambda grant: fences.append(grant.fence))
    assert increasing(fences)


def test_fences_increase_over_all_kinds_of_one_name(world: World) -> None:
    locks = world.connect()
    ann = world.actor()
    fences: list[int] = []
    for each in KINDS * 3:
        ann.within(each.make(locks, world.name), lambda grant: fences.append(grant.fence))
    assert increasing(fences)


def test_fences_of_those_who_share_differ_and_increase(world: World) -> None:
    lock = world.connect().semaphore(world.name, 10)
    ann = world.actor()
    assert increasing([ann.do(lock.acquire).fence for _ in range(10)])


def test_fences_increase_when_leases_end(world: World) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    lock = locks.lock(world.name, ttl=0.15, renew=False)
    fences = [actor.do(lock.acquire).fence for actor in (ann, bob) * 3]
    assert increasing(fences)


def test_fences_increase_when_holders_die_or_are_evicted(world: World) -> None:
    locks = world.connect()
    ann = world.actor()
    fences = []
    for _ in range(3):
        grant = ann.do(locks.lock(world.name).acquire)
        fences.append(grant.fence)
        world.eye.evict(world.name)
        world.ghost(LockSpec(world.key(), ttl=0.1))
    assert increasing(fences)


def test_fences_increase_when_all_connections_were_closed(world: World) -> None:
    ann = world.actor()
    fences = []
    for _ in range(5):
        locks = world.connect()
        for _ in range(2):
            ann.within(locks.lock(world.name), lambda grant: fences.append(grant.fence))
        ann.do(locks.close)
    assert increasing(fences)


def test_fences_increase_after_thousands_of_other_names(world: World) -> None:
    locks = world.connect()
    ann = world.actor()
    fences: list[int] = []

    def others() -> Any:
        names = [world.fresh_name() for _ in range(100)]
        if world.colour == "threads":
            for name in names:
                locks.lock(name).acquire().release()
            return None

        async def go() -> None:
            for name in names:
                await (await locks.lock(name).acquire()).release()

        return go()

    for _ in range(2):
        ann.within(locks.lock(world.name), lambda grant: fences.append(grant.fence))
        for _ in range(4):  # a slow disk has the time limit of a call for each hundred
            ann.do(others)
    ann.within(locks.lock(world.name), lambda grant: fences.append(grant.fence))
    assert increasing(fences)


def test_a_fence_is_fixed_in_the_handle(world: World) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    old = ann.do(locks.lock(world.name, ttl=0.2, renew=False).acquire)
    fence = old.fence
    new = bob.do(locks.lock(world.name).acquire)
    assert new.fence > fence
    assert old.fence == fence
    ann.do(old.release)
    ann.do(old.renew)
    assert old.fence == fence


def test_a_fence_does_not_change_with_renewals(world: World) -> None:
    lock = world.connect().lock(world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    fence = grant.fence
    for _ in range(5):
        ann.do(grant.renew)
        assert grant.fence == fence == world.holders()[0].fence


def test_a_resource_that_compares_fences_refuses_who_lost_the_lock(world: World) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    highest = 0

    def write(fence: int) -> bool:
        nonlocal highest
        accepted = fence >= highest
        highest = max(highest, fence)
        return accepted

    old = ann.do(locks.lock(world.name, ttl=0.2, renew=False).acquire)
    assert write(old.fence) is True
    new = bob.do(locks.lock(world.name).acquire)
    assert write(new.fence) is True
    assert write(old.fence) is False
