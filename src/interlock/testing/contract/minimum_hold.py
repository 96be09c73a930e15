"""`at_least`: a lock that is released early stays held until that time."""

import time
from typing import Any

import pytest

from interlock.testing.actors import Actor
from interlock.testing.store_fixture import KINDS, ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, eventually, lasting, moment

MINIMUM_HOLD = 0.8  # seconds
MACHINE_DELAY = 3.0  # seconds of delay by a busy machine and a poll
TESTED_KINDS = [each for each in KINDS if each.name in ("exclusive", "re-entrant", "reader")]


@pytest.mark.parametrize("kind", TESTED_KINDS, ids=lambda kind: kind.name)
def test_an_early_release_returns_at_once_and_frees_in_time(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    began = time.monotonic()
    with lasting(MINIMUM_HOLD, MACHINE_DELAY):
        grant = ann.do(kind.make(locks, world.name, at_least=MINIMUM_HOLD).acquire)
        rival = world.in_line(bob.start, kind.rival(locks, world.name).acquire)
        assert ann.do(grant.release) is True
        assert [view.id for view in world.holders()] == [grant.id] or time.monotonic() >= began + MINIMUM_HOLD
        assert (grant.held, grant.lost, grant.expires_in) == (False, False, 0.0)
        assert ann.do(grant.release) is False
        successor = rival.result(MINIMUM_HOLD + 20)
    assert successor.fence > grant.fence
    assert bob.do(successor.release) is True


def test_a_block_end_returns_at_once_and_the_owner_waits_next(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lock = locks.lock(world.name, at_least=MINIMUM_HOLD)
    began = moment()
    first = ann.within(lock, lambda grant: grant)
    assert ann.do(lock.owned) is False
    assert ann.do(lock.acquire, blocking=False) is None or time.monotonic() >= began + MINIMUM_HOLD
    second = ann.do(lock.acquire)
    assert time.monotonic() - began >= MINIMUM_HOLD
    assert second.fence > first.fence
    ann.do(second.release)
    world.until_free()


def test_the_minimum_hold_begins_at_the_grant_not_at_the_request(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    held = ann.do(locks.lock(world.name).acquire)
    # Its lease began when it entered the line, and would expire too soon.
    waiting = world.in_line(bob.start, locks.lock(world.name, ttl=RENEWED, at_least=RENEWED, renew=False).acquire)
    until = time.monotonic() + 0.3
    eventually(lambda: time.monotonic() > until)
    obtained = time.monotonic()
    ann.do(held.release)
    grant = waiting.result(20)
    assert bob.do(grant.release) is True
    assert eve.do(locks.lock(world.name).acquire) is not None
    assert time.monotonic() - obtained >= RENEWED


def test_a_closed_connection_leaves_the_lock_to_its_lease(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    began = moment()
    grant = ann.do(locks.lock(world.name, ttl=MINIMUM_HOLD * 2, at_least=MINIMUM_HOLD).acquire)
    assert ann.do(grant.release) is True
    ann.do(locks.close)
    successor = bob.do(world.connect().lock(world.name).acquire)
    # Where a claim ends with its process, it may end with its connection too.
    assert time.monotonic() - began >= MINIMUM_HOLD or world.place.frees_at_death
    assert successor.fence > grant.fence


def test_each_of_several_locks_keeps_its_own_minimum_hold(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    names = [world.fresh_name() for _ in range(2)]
    lock = locks.all(locks.lock(names[0], at_least=60), names[1])
    other = bob.do(locks.lock(names[1]).acquire)
    assert ann.do(lock.acquire, blocking=False) is None
    assert world.nothing_left(names[0])
    bob.do(other.release)
    grants = ann.do(lock.acquire)
    assert ann.do(grants.release) is True
    assert [len(world.holders(name)) for name in names] == [1, 0]
    world.eye.evict(names[0])


def test_a_ttl_that_is_left_out_is_as_long_as_at_least(world: ContractWorld, ann: Actor) -> None:
    locks = world.connect(ttl=2)
    grant = ann.do(locks.lock(world.name, at_least=9).acquire)
    assert 2 < grant.expires_in <= 9
    assert ann.do(grant.release) is True
    world.eye.evict(world.name)
