"""Grants: what they tell, and releasing: repeated, from elsewhere, tried again after an error."""

import asyncio
import gc
import time
import warnings
import weakref
from functools import partial
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.testing.faults import Failing
from interlock.testing.waiting import RENEWED, collected, eventually
from interlock.testing.world import Kind, World


def test_a_grant_tells_what_is_held(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name, ttl=20)
    ann = world.actor()
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


def test_release_says_whether_this_call_released_it(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    assert [ann.do(grant.release) for _ in range(3)] == [True, False, False]
    assert world.nothing_left()


def test_a_released_grant_is_not_lost_and_its_check_says_so(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    ann.do(grant.release)
    assert grant.lost is False
    assert grant.held is False
    assert grant.expires_in == 0
    with pytest.raises(NotHeld):
        grant.check()
    assert ann.do(grant.renew) is False


def test_an_old_grant_does_not_release_its_successor(world: World, kind: Kind) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    lock = kind.make(locks, world.name)
    old = ann.do(lock.acquire)
    ann.do(old.release)
    new = bob.do(lock.acquire)
    assert ann.do(old.release) is False
    assert [view.id for view in world.holders()] == [new.id]


def test_a_grant_may_be_released_from_anywhere(world: World, kind: Kind) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    lock = kind.make(locks, world.name)
    grant = ann.do(lock.acquire)
    assert bob.do(grant.release) is True
    assert world.nothing_left()
    assert ann.do(lock.owned) is False
    assert ann.do(grant.release) is False


def test_lock_release_releases_what_the_caller_acquired_last(world: World) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    lock = locks.semaphore(world.name, 3)
    first, second, others = ann.do(lock.acquire), ann.do(lock.acquire), bob.do(lock.acquire)
    ann.do(lock.release)
    assert (first.held, second.held, others.held) == (True, False, True)
    ann.do(lock.release)
    assert (first.held, others.held) == (False, True)
    with pytest.raises(NotHeld):
        ann.do(lock.release)
    assert others.held is True


def test_lock_release_by_one_who_does_not_hold_is_refused_as_in_threading(world: World, kind: Kind) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
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


def test_lock_release_after_the_grant_was_released_is_refused(world: World) -> None:
    lock = world.connect().lock(world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    ann.do(grant.release)
    with pytest.raises(NotHeld):
        ann.do(lock.release)


def test_lock_release_after_the_loss_is_refused(world: World) -> None:
    lock = world.connect().lock(world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    world.eye.evict(world.name)
    with pytest.raises(NotHeld):
        ann.do(lock.release)
    assert grant.lost is True


def test_a_release_that_failed_can_be_tried_again(world: World, kind: Kind) -> None:
    locks, faults = world.connect_with(Failing)
    ann = world.actor()
    lock = kind.make(locks, world.name)
    grant = ann.do(lock.acquire)
    faults.broken.add("leave")
    for _ in range(2):
        with pytest.raises(StoreError):
            ann.do(grant.release)
    assert grant.held is False  # it may be another's already
    assert ann.do(lock.owned) is False
    faults.broken.clear()
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_a_lock_release_that_failed_can_be_tried_again(world: World, kind: Kind) -> None:
    locks, faults = world.connect_with(Failing)
    ann = world.actor()
    lock = kind.make(locks, world.name)
    ann.do(lock.acquire)
    faults.broken.add("leave")
    with pytest.raises(StoreError):
        ann.do(lock.release)
    faults.broken.clear()
    ann.do(lock.release)
    assert world.nothing_left()


def test_renew_gives_a_full_lease_from_now(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name, ttl=20, renew=False)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    eventually(lambda: grant.expires_in < 19.9)
    began = time.monotonic()
    assert ann.do(grant.renew) is True
    left = grant.expires_in
    assert left <= 20
    assert time.monotonic() + left > began + 19.95  # this order: the machine may stand still between two lines
    assert world.holders()[0].fence == grant.fence


def test_renew_of_an_evicted_claim_tells_the_loss(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    world.eye.evict(world.name)
    assert ann.do(grant.renew) is False
    assert grant.lost is True
    with pytest.raises(LockLost):
        grant.check()
    assert ann.do(grant.release) is False


def test_one_lock_object_keeps_the_grants_of_all_who_use_it_apart(world: World) -> None:
    locks = world.connect()
    actors = world.actors(4)
    lock = locks.semaphore(world.name, 4)
    grants = [actor.do(lock.acquire) for actor in actors]
    assert len({grant.id for grant in grants}) == 4
    actors[1].do(lock.release)
    assert [grant.held for grant in grants] == [True, False, True, True]
    assert [actor.do(lock.owned) for actor in actors] == [True, False, True, True]


def test_acquiring_a_held_lock_object_again_waits_and_does_not_disturb_the_grant(world: World) -> None:
    lock = world.connect().lock(world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    assert ann.do(lock.acquire, timeout=0) is None
    assert ann.do(lock.acquire, timeout=0.05) is None
    assert grant.held is True
    ann.do(lock.release)
    assert world.nothing_left()


def test_locked_and_owned(world: World, kind: Kind) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    lock, other = kind.make(locks, world.name), kind.make(locks, world.name)
    assert ann.do(lock.locked) is False
    assert ann.do(lock.owned) is False
    grant = ann.do(lock.acquire)
    assert [ann.do(each.locked) for each in (lock, other)] == [True, True]
    assert [ann.do(lock.owned), ann.do(other.owned), bob.do(lock.owned)] == [True, False, False]
    ann.do(grant.release)
    assert bob.do(other.locked) is False
    assert ann.do(lock.owned) is False


def test_with_gives_the_grant_and_releases_at_the_end(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    seen = ann.within(lock, lambda grant: (grant.held, grant.id, [view.id for view in world.holders()]))
    assert seen == (True, seen[1], [seen[1]])
    assert world.nothing_left()


def test_with_releases_when_the_body_fails(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()

    def body(grant: object) -> None:
        raise KeyError("of the body")

    with pytest.raises(KeyError, match="of the body"):
        ann.within(lock, body)
    assert world.nothing_left()


def test_a_body_may_release_its_grant_itself(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    assert ann.within(lock, lambda grant: grant.release()) is True
    assert world.nothing_left()


def test_with_acquire_gives_the_grant_and_releases_at_the_end(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire, timeout=5)
    seen = ann.within(grant, lambda entered: (entered is grant, entered.held, len(world.holders())))
    assert seen == (True, True, 1)
    assert world.nothing_left()
    assert (grant.held, grant.lost, ann.do(lock.owned)) == (False, False, False)
    assert ann.within(ann.do(lock.acquire), lambda entered: entered.release()) is True
    assert world.nothing_left()


def test_with_acquire_releases_when_the_body_fails(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    with pytest.raises(ZeroDivisionError):
        ann.within(ann.do(lock.acquire), lambda grant: 1 // 0)
    assert world.nothing_left()


def test_with_acquire_raises_on_leaving_when_the_lock_was_lost(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann = world.actor()
    with pytest.raises(LockLost, match=world.name):
        ann.within(ann.do(lock.acquire), lambda grant: world.eye.evict(world.name) and None)
    with pytest.raises(ZeroDivisionError) as caught:
        ann.within(ann.do(lock.acquire), lambda grant: world.eye.evict(world.name) // 0)
    assert "was lost" in caught.value.__notes__[0]


def test_with_acquire_cancels_the_body_of_a_task_that_lost_the_lock(world_of_tasks: World, kind: Kind) -> None:
    world = world_of_tasks
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    ann = world.actor()
    reached: list[str] = []

    async def body(grant: object) -> None:
        world.eye.evict(world.name)
        await asyncio.sleep(60)
        reached.append("the end")

    with pytest.raises(LockLost):
        ann.within(ann.do(lock.acquire), body)
    assert reached == []
    assert ann.within(lock, lambda grant: grant.held) is True


def test_a_grant_that_is_not_held_or_in_a_body_already_can_not_be_entered(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann, bob = world.actors(2)
    released = ann.do(lock.acquire)
    ann.do(released.release)
    with pytest.raises(NotHeld):
        ann.within(released, print)
    lost = ann.do(lock.acquire)
    world.eye.evict(world.name)
    assert ann.do(lost.renew) is False
    with pytest.raises(LockLost):
        ann.within(lost, print)
    inside, leave = world.gate(), world.gate()

    def body(grant: Any) -> Any:
        inside.open()
        return leave.wait()

    working = ann.start_within(lock, body)
    inside_grant = eventually(lambda: [grant for grants in lock._held.values() for grant in grants if grant.held])[0]
    with pytest.raises(NotHeld, match="already"):
        bob.within(inside_grant, print)
    assert inside_grant.held is True
    leave.open()
    working.result(20)
    assert world.nothing_left()


def test_a_grant_that_was_acquired_by_another_may_be_entered(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    ann, bob = world.actors(2)
    assert bob.within(ann.do(lock.acquire), lambda grant: grant.held) is True
    assert world.nothing_left()
    assert ann.do(lock.owned) is False


def forget(world: World, make: Any) -> None:
    """Have an actor acquire the lock that `make` returns and drop both."""

    def work() -> None:
        make().acquire()

    async def task() -> None:
        await make().acquire()

    with collected():
        world.actor().do(work if world.colour == "threads" else task)


def test_a_held_grant_that_is_collected_warns_and_its_lease_ends(world: World, kind: Kind) -> None:
    locks = world.connect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        forget(world, lambda: kind.make(locks, world.name, ttl=0.6))
        eventually(lambda: seen or (gc.collect() and seen))  # a thread of the store's may have the call in its hands
    assert [each.category for each in seen] == [ResourceWarning]
    assert repr(world.name) in str(seen[0].message)
    assert "release()" in str(seen[0].message)
    world.until_free()


def test_a_grant_that_is_dropped_after_a_renewal_is_renewed_no_more(world: World) -> None:
    locks = world.connect()
    ann = world.actor()
    lock = locks.lock(world.name, ttl=RENEWED)
    gone = weakref.ref(ann.do(lock.acquire))
    until = time.monotonic() + world.holders()[0].expires_in
    eventually(lambda: time.monotonic() + world.holders()[0].expires_in > until + 0.1)  # renewed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        ann.forget()
        del lock
        eventually(lambda: gc.collect() >= 0 and gone() is None)  # not all the time: it takes a processor's
    eventually(lambda: not world.holders())


def test_what_was_released_or_lost_is_collected_without_a_warning(world: World, kind: Kind) -> None:
    locks = world.connect()
    ann = world.actor()
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


def test_a_lock_object_keeps_what_was_acquired_by_it(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    ann = world.actor()

    def work() -> None:
        lock.acquire()

    async def task() -> None:
        await lock.acquire()

    with collected():
        ann.do(work if world.colour == "threads" else task)
    until = time.monotonic() + world.holders()[0].expires_in
    # Renewed, which nobody does for a dropped grant.
    eventually(lambda: time.monotonic() + world.holders()[0].expires_in > until + 0.1)
    ann.do(lock.release)
    assert world.nothing_left()


def test_locks_and_grants_can_be_referenced_weakly(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    several = world.connect().all(world.fresh_name())
    ann = world.actor()
    grant, grants = ann.do(lock.acquire), ann.do(several.acquire)
    for each in (lock, several, grant, grants, grants[0]):
        assert weakref.ref(each)() is each
    ann.do(grant.release)
    ann.do(grants.release)


def test_lost_grants_do_not_pile_up(world: World, kind: Kind) -> None:
    lock = kind.make(world.connect(), world.name)
    lost: list[weakref.ref[Any]] = []

    def work() -> None:
        lost.append(weakref.ref(lock.acquire()))

    async def task() -> None:
        lost.append(weakref.ref(await lock.acquire()))

    ann = world.actor()
    for _ in range(12):
        ann.do(work if world.colour == "threads" else task)
        world.eye.evict(world.name)
        last = lost[-1]()
        assert last is not None
        assert ann.do(last.renew) is False
        del last
    ann.do(ann.do(lock.acquire).release)
    gc.collect()
    assert [each() for each in lost] == [None] * 12
    with pytest.raises(NotHeld):
        ann.do(lock.release)


def test_a_lost_grant_above_a_held_one_is_not_mistaken_for_it(world: World) -> None:
    lock = world.connect().semaphore(world.name, 3)
    ann = world.actor()
    first, second = ann.do(lock.acquire), ann.do(lock.acquire)
    world.eye.evict(world.name, second.id)
    assert ann.do(second.renew) is False
    third = ann.do(lock.acquire)
    ann.do(lock.release)
    assert third.held is False
    with pytest.raises(NotHeld):
        ann.do(lock.release)
    assert first.held is True
    ann.do(lock.release)
    assert first.held is False
