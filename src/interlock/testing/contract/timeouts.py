"""Time-outs: each call has one deadline in all events."""

import os
from typing import Any

import pytest

from interlock.core.errors import LockError, LockTimeout, StoreError
from interlock.testing.actors import Actor
from interlock.testing.faults import Failing, Slow
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, WAIT_LIMIT, eventually, lasting, moment, since

MACHINE_DELAY = 1.0  # seconds of delay by a busy machine


def test_a_try_answers_at_once(world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor) -> None:
    ann.do(kind.rival(locks, world.name).acquire)
    lock = kind.make(locks, world.name)
    started = moment()
    assert bob.do(lock.acquire, timeout=0) is None
    assert bob.do(lock.acquire, blocking=False) is None
    assert bob.do(lock.acquire, False, -1) is None
    assert since(started) < MACHINE_DELAY
    assert not world.waiters()


def test_a_timeout_is_kept(world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor) -> None:
    ann.do(kind.rival(locks, world.name).acquire)
    with lasting(0.25, MACHINE_DELAY):
        assert bob.do(kind.make(locks, world.name).acquire, timeout=0.25) is None
    assert not world.waiters()


def test_the_timeout_of_the_lock_is_the_default(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    assert bob.do(locks.lock(world.name, timeout=0.05).acquire) is None
    assert bob.do(locks.lock(world.name, timeout=0).acquire) is None
    waits = world.in_line(bob.start, locks.lock(world.name, timeout=0).acquire, timeout=None)
    ann.do(grant.release)
    bob.do(waits.result(20).release)


@pytest.mark.parametrize("timeout", [None, -1, float("inf")])
def test_no_limit_waits_until_it_is_free(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, timeout: Any
) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    waits = world.in_line(bob.start, locks.lock(world.name).acquire, timeout=timeout)
    ann.do(grant.release)
    bob.do(waits.result(20).release)


def test_with_raises_instead_of_running_its_body(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    ann.do(kind.rival(locks, world.name).acquire)
    ran: list[object] = []
    for timeout in (0, 0.05):
        with pytest.raises(LockTimeout) as caught:
            bob.within(kind.make(locks, world.name, timeout=timeout), ran.append)
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, LockError)
        assert world.name in str(caught.value)
    assert ran == []
    assert not world.waiters()


def test_a_time_out_says_who_holds_it(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(kind.rival(locks, world.name, label="inventory").acquire)
    with pytest.raises(LockTimeout) as caught:
        bob.within(kind.make(locks, world.name, timeout=0.05), print)
    assert caught.value.name == world.name
    assert caught.value.timeout == 0.05
    assert [view.id for view in caught.value.holders] == [grant.id]
    assert f"process {os.getpid()}" in str(caught.value)
    assert "'inventory'" in str(caught.value)


def test_a_time_out_by_oneself_says_so(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().lock(world.name, timeout=0.05)
    ann.do(lock.acquire)
    with pytest.raises(LockTimeout, match="rlock"):
        ann.within(lock, print)


def test_the_timeout_is_counted_over_all_wakeups(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    ann.do(locks.rwlock(world.name).read().acquire)
    with lasting(RENEWED, MACHINE_DELAY):
        waiting = world.in_line(bob.start, locks.rwlock(world.name).write().acquire, timeout=RENEWED)

        def over() -> bool:
            for view in world.waiters():  # each eviction wakes the waiter, which enters again
                world.eye.evict(world.name, view.id)
            return waiting.done()

        eventually(over, RENEWED + MACHINE_DELAY)
        assert waiting.result() is None
    eventually(lambda: not world.waiters())
    assert eve.do(locks.rwlock(world.name).read().acquire, timeout=0) is not None


def test_a_slow_store_stretches_the_deadline_by_its_replies_only(
    world: ContractWorld, ann: Actor, bob: Actor
) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0.2))
    ann.do(world.connect().lock(world.name).acquire)
    with lasting(0.5, 3 * slow.delay + MACHINE_DELAY):
        assert bob.do(locks.lock(world.name).acquire, timeout=0.5) is None
    assert not world.waiters()


def test_replies_slower_than_the_lease_end_in_a_timeout(world: ContractWorld, ann: Actor) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0.3))
    started = moment()
    trying = ann.start(locks.lock(world.name, ttl=0.2).acquire, timeout=0.5)
    try:
        assert trying.result(WAIT_LIMIT) is None
    finally:
        slow.delay = 0
    assert since(started) < 0.5 + 3 * 0.3 + MACHINE_DELAY
    world.until_free()


def test_a_store_that_fails_is_an_error_and_leaves_nothing(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, "enter"))
    lock = kind.make(locks, world.name)
    for timeout in (None, 0, 0.2):
        with pytest.raises(StoreError):
            ann.do(lock.acquire, timeout=timeout)
    assert ann.do(lock.owned) is False
    assert world.nothing_left()
    failing.broken.clear()
    assert ann.do(lock.acquire, timeout=0) is not None


def test_a_wait_at_a_failing_store_raises_and_leaves_nothing(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    grant = ann.do(world.connect().lock(world.name).acquire)
    waiting = world.in_line(bob.start, locks.lock(world.name, ttl=RENEWED).acquire)
    failing.broken.add("enter")
    with pytest.raises(StoreError):
        waiting.result(20)
    assert not world.waiters()
    assert ann.do(grant.release) is True
    world.until_free()
