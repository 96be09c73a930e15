"""Locks and grants that are collected: a warning if one was held, no more renewals, no growing memory."""

import gc
import time
import warnings
from functools import partial
from typing import Any

from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, collected, eventually


def forget(world: ContractWorld, make: Any) -> None:
    """Let an actor acquire the lock that `make` returns, and drop both."""
    actor = world.actor()
    with collected():
        actor.do(lambda: make().acquire())
        actor.forget()


def test_a_held_grant_that_is_collected_warns_and_its_lease_ends(
    world: ContractWorld, kind: LockKind, locks: Any
) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        forget(world, lambda: kind.make(locks, world.name, ttl=2 * RENEWED))  # is collected before it is lost
        eventually(lambda: seen or (gc.collect() and seen))  # a thread of the store may still refer to it
    assert [each.category for each in seen] == [ResourceWarning]
    assert repr(world.name) in str(seen[0].message)
    assert "release()" in str(seen[0].message)
    world.until_free()


def test_released_or_lost_grants_are_collected_without_a_warning(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor
) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        lock = kind.make(locks, world.name, ttl=RENEWED)
        ann.do(ann.do(lock.acquire).release)
        ann.do(lock.acquire)
        ann.do(lock.release)
        ann.within(lock, print)
        lost = ann.do(lock.acquire)
        world.eye.evict(world.name)
        eventually(partial(getattr, lost, "lost"))
        ann.forget()
        del lock, lost
        gc.collect()
    assert [str(each.message) for each in seen] == []


def test_a_lock_object_keeps_what_was_acquired_by_it(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    with collected():
        ann.do(lock.acquire)
        ann.forget()
    until = time.monotonic() + world.holders()[0].expires_in
    # The lease is renewed, so the grant was not dropped.
    eventually(lambda: time.monotonic() + world.holders()[0].expires_in > until + 0.1)
    ann.do(lock.release)
    assert world.nothing_left()
