"""`max_waiters`, with which a caller does not wait behind many others."""

from typing import Any

import pytest

from interlock.core.claims import LockSpec
from interlock.core.errors import Busy, InvalidArgument, LockTimeout, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs
from interlock.testing.faults import Around, Counting
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import eventually

CALLERS = 8


@needs("waiters")
def test_one_runs_one_waits_and_the_rest_is_told(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    grant = ann.do(kind.rival(locks, world.name).acquire)
    lock = kind.make(locks, world.name, max_waiters=1)
    waits = world.in_line(bob.start, lock.acquire)
    assert eve.do(lock.acquire) is None
    ran: list[object] = []
    with pytest.raises(Busy) as caught:
        eve.within(lock, ran.append)
    assert isinstance(caught.value, LockTimeout)
    assert (caught.value.name, caught.value.waiters) == (world.name, 1)
    assert [each.id for each in caught.value.holders] == [grant.id]
    assert world.name in str(caught.value)
    assert not ran
    assert len(world.waiters()) == 1
    ann.do(grant.release)
    bob.do(waits.result(20).release)


@needs("waiters")
def test_a_lock_without_waiters_is_taken_as_ever(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor
) -> None:
    lock = kind.make(locks, world.name, max_waiters=1)
    for _ in range(2):
        ann.do(ann.do(lock.acquire).release)


@needs("waiters")
def test_each_caller_goes_by_its_own_number(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    strict, lenient = (locks.lock(world.name, max_waiters=most) for most in (1, 2))
    grant = ann.do(locks.lock(world.name).acquire)
    first = world.in_line(bob.start, locks.lock(world.name).acquire)
    assert eve.do(strict.acquire) is None
    second = world.in_line(eve.start, lenient.acquire)
    ann.do(grant.release)
    bob.do(first.result(20).release)
    eve.do(second.result(20).release)


@needs("waiters")
@pytest.mark.parametrize("most", [1, 3])
def test_a_crowd_leaves_as_many_waiters_as_are_allowed(
    world: ContractWorld, locks: Any, ann: Actor, most: int
) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    crowd = world.actors(CALLERS)
    ran: list[object] = []
    calls = [each.start_within(locks.lock(world.name, max_waiters=most), ran.append) for each in crowd]
    eventually(lambda: sum(call.done() for call in calls) == CALLERS - most)
    assert len(world.waiters()) == most
    ann.do(grant.release)
    errors = [call.exception(20) for call in calls]
    assert [type(error) for error in errors if error is not None] == [Busy] * (CALLERS - most)
    assert len(ran) == most
    world.until_free()


class Evicting(Around):
    """Evicts a claim before the first step "leave"."""

    def before(self, step: str, args: Any) -> Any:
        if step == "leave" and self.stale:
            world, id = self.stale.pop()
            assert world.eye.evict(world.name, id) == 1
        return args

    stale: list[tuple[ContractWorld, str]]


@needs("waiters")
def test_who_withdrew_for_one_that_is_gone_waits_again(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    """Otherwise two callers that withdraw for each other are both refused, and nobody waits."""
    grant = ann.do(locks.lock(world.name).acquire)
    mine, store = world.connect_with(Evicting)
    store.stale = [(world, world.stale_claim(LockSpec(world.key(), ttl=600)))]
    waits = bob.start(mine.lock(world.name, max_waiters=1).acquire)
    eventually(lambda: not store.stale and len(world.waiters()) == 1)
    ann.do(grant.release)
    bob.do(waits.result(20).release)


class Away(Around):
    """Refuses the first step of one kind after the first withdrawal has begun."""

    step = ""
    begun = done = False

    def before(self, step: str, args: Any) -> Any:
        self.begun |= step == "leave"
        if self.begun and step == self.step and not self.done:
            self.done = True
            raise StoreError("The store is away, by order of the test.")
        return args


@needs("waiters")
@pytest.mark.parametrize("step", ["leave", "look"])
def test_a_store_that_is_away_for_a_moment_ends_no_call(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor, step: str
) -> None:
    mine, store = world.connect_with(Away)
    store.step = step
    lock = mine.lock(world.name, max_waiters=1)
    grant = ann.do(locks.lock(world.name).acquire)
    waits = world.in_line(bob.start, locks.lock(world.name).acquire)
    assert eve.do(lock.acquire) is None
    assert store.done
    ann.do(grant.release)
    bob.do(waits.result(20).release)
    world.until_free()


@needs("waiters")
def test_who_waits_asks_once_more(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    steps = []
    for most in (None, 1):
        mine, store = world.connect_with(Counting)
        assert bob.do(mine.lock(world.name, timeout=0.3, max_waiters=most).acquire) is None
        steps.append(store.steps["look"])
    assert steps == [0, 1]
    ann.do(grant.release)


@needs("waiters")
def test_a_guarded_function_is_skipped_if_many_wait(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    def steps() -> Any:
        yield from ()
        return "done"

    job = locks.guard(world.name, on_busy="skip", max_waiters=1)(world.function(steps))
    grant = ann.do(locks.lock(world.name).acquire)
    waits = world.in_line(bob.start, job)
    assert eve.do(job) is None
    ann.do(grant.release)
    assert waits.result(20) == "done"


@needs("waiters")
def test_several_locks_are_given_up_together(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    other = world.fresh_name()
    both = locks.all(other, locks.lock(world.name, max_waiters=1))
    grant = ann.do(locks.lock(world.name).acquire)
    waits = world.in_line(bob.start, locks.lock(world.name).acquire)
    assert eve.do(both.acquire) is None
    assert world.nothing_left(other)
    with pytest.raises(Busy):
        eve.within(both, print)
    assert world.nothing_left(other)
    ann.do(grant.release)
    bob.do(waits.result(20).release)


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, "1"])
def test_a_wrong_number_of_waiters_is_refused(world: ContractWorld, locks: Any, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_waiters"):
        locks.lock(world.name, max_waiters=wrong)
