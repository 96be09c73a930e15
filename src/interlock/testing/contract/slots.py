"""Slots: each holder of a semaphore gets the lowest free slot, and of `one_of` the first free item."""

from typing import Any

import pytest

from interlock.core.errors import InvalidArgument, Unsupported
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs
from interlock.testing.store_fixture import ContractWorld


@needs("slot", "semaphores")
def test_each_holder_has_the_lowest_number_that_is_free(world: ContractWorld) -> None:
    lock = world.connect().semaphore(world.name, 3)
    ann, bob, cyd = world.actors(3)
    first, second, third = (each.do(lock.acquire) for each in (ann, bob, cyd))
    assert [first.slot, second.slot, third.slot] == [0, 1, 2]
    waiting = world.in_line(world.actor().start, lock.acquire)
    assert bob.do(second.release) is True
    assert waiting.result(20).slot == 1
    assert ann.do(first.release) is True
    assert ann.do(lock.acquire).slot == 0


def test_an_exclusive_lock_has_slot_0_and_others_raise(world: ContractWorld, locks: Any, ann: Actor) -> None:
    assert ann.do(locks.lock(world.name).acquire).slot == 0
    if "semaphores" not in locks.store.features:
        return
    for lock in (locks.semaphore(world.fresh_name(), 3, units=2), locks.rwlock(world.fresh_name()).read()):
        grant = ann.do(lock.acquire)
        with pytest.raises(Unsupported, match="slot"):
            _ = grant.slot


@needs("slot", "semaphores")
def test_each_holder_has_another_thing_whatever_the_order(world: ContractWorld) -> None:
    ann, bob, cyd = world.actors(3)
    first = ann.do(world.connect().one_of(world.name, ["cuda:1", "cuda:0"], label="training").acquire)
    second = bob.do(world.connect().one_of(world.name, ["cuda:0", "cuda:1"]).acquire)
    assert (first.item, second.item) == ("cuda:0", "cuda:1")
    assert world.holders()[0].label == "training one of cuda:0, cuda:1"
    waiting = world.in_line(cyd.start, world.connect().one_of(world.name, ("cuda:1", "cuda:0")).acquire)
    ann.do(first.release)
    assert waiting.result(20).item == "cuda:0"


@needs("slot", "semaphores")
def test_another_list_is_refused_with_both(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    ann.do(world.connect().one_of(world.name, ["a", "b"]).acquire)
    for other in (["a", "c"], ["a"], ["a", "b", "c"], [f"{number:040}" for number in range(9)]):
        with pytest.raises(InvalidArgument, match=r"\[a, b\]"):
            bob.do(world.connect().one_of(world.name, other).acquire)
    assert len(world.eye.claims(world.name)) == 1


@needs("slot", "semaphores")
def test_a_long_list_is_known_again(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    items = [f"host-{number:030}" for number in range(20)]
    assert ann.do(world.connect().one_of(world.name, items).acquire).item == items[0]
    assert bob.do(world.connect().one_of(world.name, items[::-1]).acquire).item == items[1]


@needs("slot", "semaphores")
def test_a_semaphore_has_no_items_and_one_item_is_enough(world: ContractWorld, locks: Any, ann: Actor) -> None:
    grant = ann.do(locks.semaphore(world.name, 2).acquire)
    with pytest.raises(Unsupported, match="one_of"):
        _ = grant.item
    assert ann.do(locks.one_of(world.fresh_name(), ["only"]).acquire).item == "only"
