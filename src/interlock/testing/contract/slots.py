"""Slots: each holder of a semaphore has the lowest number that no other has."""

from typing import Any

import pytest

from interlock.core.errors import Unsupported
from interlock.testing.actors import Actor
from interlock.testing.world import World


def _has_slots(world: World) -> bool:
    return {"slot", "semaphores"} <= world.eye.store.features


def test_each_holder_has_the_lowest_number_that_is_free(world: World) -> None:
    if not _has_slots(world):
        return
    lock = world.connect().semaphore(world.name, 3)
    ann, bob, cyd = world.actors(3)
    first, second, third = (each.do(lock.acquire) for each in (ann, bob, cyd))
    assert [first.slot, second.slot, third.slot] == [0, 1, 2]
    waiting = world.actor().start(lock.acquire)
    world.until_waiting(1)
    assert bob.do(second.release) is True
    assert waiting.result(20).slot == 1
    assert ann.do(first.release) is True
    assert ann.do(lock.acquire).slot == 0


def test_an_exclusive_lock_has_slot_0_and_what_has_no_slots_says_so(world: World, locks: Any, ann: Actor) -> None:
    assert ann.do(locks.lock(world.name).acquire).slot == 0
    if not _has_slots(world):
        return
    for lock in (locks.semaphore(world.fresh_name(), 3, units=2), locks.rwlock(world.fresh_name()).read()):
        grant = ann.do(lock.acquire)
        with pytest.raises(Unsupported, match="slots"):
            _ = grant.slot
