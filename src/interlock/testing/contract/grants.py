"""Grants: their attributes, and releases: repeated, from another thread or task, retried after an error."""

import time
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.testing.actors import Actor
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import eventually


def test_a_grant_tells_what_is_held(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name, ttl=20)
    grant = ann.do(lock.acquire)
    assert grant.name == world.name
    assert isinstance(grant.fence, int)
    assert not isinstance(grant.fence, bool)
    assert grant.fence > 0
    assert 15 < grant.expires_in <= 20
    assert grant.lost is False
    assert grant.held is True
    grant.check()
    (view,) = world.holders()
    assert (view.id, view.fence) == (grant.id, grant.fence)


def test_release_says_whether_this_call_released_it(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    grant = ann.do(lock.acquire)
    assert [ann.do(grant.release) for _ in range(3)] == [True, False, False]
    assert world.nothing_left()


def test_a_released_grant_is_not_lost_and_its_check_says_so(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    grant = ann.do(lock.acquire)
    ann.do(grant.release)
    assert grant.lost is False
    assert grant.held is False
    assert grant.expires_in == 0
    with pytest.raises(NotHeld):
        grant.check()
    assert ann.do(grant.renew) is False


def test_an_old_grant_does_not_release_its_successor(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = kind.make(locks, world.name)
    old = ann.do(lock.acquire)
    ann.do(old.release)
    new = bob.do(lock.acquire)
    assert ann.do(old.release) is False
    assert [view.id for view in world.holders()] == [new.id]


def test_a_grant_may_be_released_from_anywhere(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = kind.make(locks, world.name)
    grant = ann.do(lock.acquire)
    assert bob.do(grant.release) is True
    assert world.nothing_left()
    assert ann.do(lock.owned) is False
    assert ann.do(grant.release) is False


def test_lock_release_releases_what_the_caller_acquired_last(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = locks.semaphore(world.name, 3)
    first, second, others = ann.do(lock.acquire), ann.do(lock.acquire), bob.do(lock.acquire)
    ann.do(lock.release)
    assert (first.held, second.held, others.held) == (True, False, True)
    ann.do(lock.release)
    assert (first.held, others.held) == (False, True)
    with pytest.raises(NotHeld):
        ann.do(lock.release)
    assert others.held is True


def test_lock_release_without_holding_raises_as_in_threading(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = kind.make(locks, world.name)
    with pytest.raises(RuntimeError) as caught:
        ann.do(lock.release)
    assert isinstance(caught.value, NotHeld)
    grant = ann.do(lock.acquire)
    with pytest.raises(NotHeld):
        bob.do(lock.release)
    with pytest.raises(NotHeld):
        ann.do(kind.make(locks, world.name).release)  # another lock object
    assert grant.held is True
    ann.do(lock.release)
    with pytest.raises(NotHeld):
        ann.do(lock.release)


def test_a_release_that_failed_can_be_tried_again(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    locks, faults = world.connect_with(Failing)
    lock = kind.make(locks, world.name)
    grant = ann.do(lock.acquire)
    faults.broken.add("leave")
    for _ in range(2):
        with pytest.raises(StoreError):
            ann.do(grant.release)
    assert grant.held is False  # another claim may hold the lock already
    assert ann.do(lock.owned) is False
    faults.broken.clear()
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_renew_gives_a_full_lease_from_now(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name, ttl=20, renew=False)
    grant = ann.do(lock.acquire)
    eventually(lambda: grant.expires_in < 19.9)
    began = time.monotonic()
    assert ann.do(grant.renew) is True
    left = grant.expires_in
    assert left <= 20
    assert time.monotonic() + left > began + 19.95  # in this order: the machine may stall between two lines
    assert world.holders()[0].fence == grant.fence


def test_renew_of_an_evicted_claim_tells_the_loss(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    grant = ann.do(lock.acquire)
    world.eye.evict(world.name)
    assert ann.do(grant.renew) is False
    assert grant.lost is True
    with pytest.raises(LockLost):
        grant.check()
    assert ann.do(grant.release) is False


def test_locked_and_owned(world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor) -> None:
    lock, other = kind.make(locks, world.name), kind.make(locks, world.name)
    assert ann.do(lock.locked) is False
    assert ann.do(lock.owned) is False
    grant = ann.do(lock.acquire)
    assert [ann.do(each.locked) for each in (lock, other)] == [True, True]
    assert [ann.do(lock.owned), ann.do(other.owned), bob.do(lock.owned)] == [True, False, False]
    ann.do(grant.release)
    assert bob.do(other.locked) is False
    assert ann.do(lock.owned) is False
