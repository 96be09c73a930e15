"""Re-entrant locks: a count on top of one claim, per thread or task, that dies with the lease."""

import gc
import warnings
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.testing.faults import Failing
from interlock.testing.waiting import RENEWED, eventually
from interlock.testing.world import World


def test_its_holder_gets_it_again_with_the_same_claim_and_fence(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann = world.actor()
    grants = [ann.do(lock.acquire, timeout=0) for _ in range(3)]
    assert None not in grants
    assert len({(grant.id, grant.fence) for grant in grants}) == 1
    assert len(world.holders()) == 1


def test_only_the_last_release_gives_it_back(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann, bob = world.actors(2)
    for _ in range(3):
        ann.do(lock.acquire)
    for _ in range(2):
        ann.do(lock.release)
        assert bob.do(lock.acquire, timeout=0) is None
        assert ann.do(lock.owned) is True
    ann.do(lock.release)
    assert ann.do(lock.owned) is False
    assert world.nothing_left()
    with pytest.raises(NotHeld):
        ann.do(lock.release)


def test_other_threads_and_tasks_are_not_admitted(world: World) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    ann.do(locks.rlock(world.name).acquire)
    assert bob.do(locks.rlock(world.name).acquire, timeout=0) is None
    assert bob.do(locks.rlock(world.name).owned) is False
    with pytest.raises(NotHeld):
        bob.do(locks.rlock(world.name).release)


def test_one_who_shares_the_lock_object_is_not_admitted(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann, bob = world.actors(2)
    ann.do(lock.acquire)
    assert bob.do(lock.acquire, timeout=0) is None
    with pytest.raises(NotHeld):
        bob.do(lock.release)
    assert ann.do(lock.owned) is True


def test_two_lock_objects_of_one_connection_are_one_lock(world: World) -> None:
    locks = world.connect()
    ann = world.actor()
    first = ann.do(locks.rlock(world.name).acquire)
    second = ann.do(locks.rlock(world.name).acquire, timeout=0)
    assert second is not None
    assert second.fence == first.fence
    assert ann.do(first.release) is True
    assert len(world.holders()) == 1
    assert ann.do(second.release) is True
    assert world.nothing_left()


def test_an_exclusive_lock_of_the_same_name_is_not_re_entered(world: World) -> None:
    locks = world.connect()
    ann = world.actor()
    ann.do(locks.rlock(world.name).acquire)
    assert ann.do(locks.lock(world.name).acquire, timeout=0) is None


def test_nested_with(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann, bob = world.actors(2)
    ann.do(lock.acquire)
    assert ann.within(lock, lambda grant: len(world.holders())) == 1
    assert bob.do(lock.acquire, timeout=0) is None
    ann.do(lock.release)
    assert world.nothing_left()


def test_releasing_a_handle_twice_does_not_release_another(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann = world.actor()
    first, second = ann.do(lock.acquire), ann.do(lock.acquire)
    assert [ann.do(first.release) for _ in range(3)] == [True, False, False]
    assert second.held is True
    assert len(world.holders()) == 1
    assert ann.do(second.release) is True
    assert ann.do(second.release) is False
    assert world.nothing_left()


def test_the_count_dies_with_the_lease(world: World) -> None:
    lock = world.connect().rlock(world.name, ttl=RENEWED, renew=False)
    ann, bob = world.actors(2)
    old = [ann.do(lock.acquire) for _ in range(3)]
    eventually(lambda: old[0].lost)
    assert [grant.lost for grant in old] == [True] * 3
    other = bob.do(lock.acquire, timeout=5)
    assert ann.do(lock.acquire, timeout=0) is None
    assert [ann.do(grant.release) for grant in old] == [False] * 3
    assert other.fence > old[0].fence


def test_after_the_loss_it_is_acquired_anew_with_a_count_of_one(world: World) -> None:
    locks = world.connect()
    lock = locks.rlock(world.name, ttl=RENEWED)
    ann, bob = world.actors(2)
    old = [ann.do(lock.acquire) for _ in range(2)]
    world.eye.evict(world.name)
    eventually(lambda: old[0].lost)
    new = ann.do(lock.acquire)
    assert new.fence > old[0].fence
    assert [ann.do(grant.release) for grant in old] == [False] * 2
    assert new.held is True
    assert ann.do(new.release) is True
    assert bob.do(lock.acquire, timeout=0) is not None


def test_a_loss_inside_nested_bodies_is_told_by_both(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann = world.actor()
    ann.do(lock.acquire)
    with pytest.raises(LockLost):
        ann.within(lock, lambda grant: [world.eye.evict(world.name), grant.renew()][1])
    with pytest.raises(NotHeld):
        ann.do(lock.release)


def test_on_lost_is_called_once_for_all_handles(world: World) -> None:
    lost: list[object] = []
    lock = world.connect().rlock(world.name, ttl=RENEWED, on_lost=lost.append)
    ann = world.actor()
    for _ in range(3):
        ann.do(lock.acquire)
    world.eye.evict(world.name)
    eventually(lambda: lost)
    assert len(lost) == 1


def test_a_failed_last_release_can_be_tried_again(world: World) -> None:
    locks, failing = world.connect_with(Failing)
    lock = locks.rlock(world.name)
    ann = world.actor()
    ann.do(lock.acquire)
    ann.do(lock.acquire)
    ann.do(lock.release)
    failing.broken.add("leave")
    with pytest.raises(StoreError):
        ann.do(lock.release)
    assert ann.do(lock.owned) is False  # it may be another's already
    failing.broken.clear()
    ann.do(lock.release)
    assert world.nothing_left()


def test_a_handle_may_be_released_from_elsewhere(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann, bob = world.actors(2)
    first, second = ann.do(lock.acquire), ann.do(lock.acquire)
    assert bob.do(first.release) is True
    assert ann.do(lock.owned) is True
    assert bob.do(second.release) is True
    assert world.nothing_left()


def test_a_thread_or_task_that_ended_is_not_taken_for_another(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    ann.end()
    for _ in range(5):
        bob = world.actor()
        assert bob.do(lock.acquire, timeout=0) is None
    assert bob.do(grant.release) is True
    assert world.nothing_left()


def test_with_acquire_inside_takes_one_handle_only(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann = world.actor()
    outer = ann.do(lock.acquire)
    inner = ann.do(lock.acquire)
    assert ann.within(inner, lambda grant: (outer.held, grant.held)) == (True, True)
    assert (outer.held, inner.held) == (True, False)
    assert ann.do(outer.release) is True
    assert world.nothing_left()


def test_a_body_that_releases_the_inner_hold_itself_keeps_the_outer_one(world: World) -> None:
    lock = world.connect().rlock(world.name)
    ann = world.actor()
    outer = ann.do(lock.acquire)
    assert ann.within(lock, lambda grant: grant.release()) is True
    assert outer.held is True
    assert len(world.holders()) == 1
    assert ann.do(outer.release) is True


def test_a_hold_whose_handles_are_all_forgotten_ends_at_once(world: World) -> None:
    locks = world.connect()
    ann = world.actor()

    def work() -> int:
        gc.collect()
        gc.disable()
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                locks.rlock(world.name, ttl=0.6).acquire()
                return eventually(lambda: len(seen))  # a renewal that is on its way holds the grant, and tells
        finally:
            gc.enable()

    async def task() -> int:
        gc.collect()
        gc.disable()
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                await locks.rlock(world.name, ttl=0.6).acquire()
                return len(seen)  # a renewal is a task on this loop: none can hold the grant now
        finally:
            gc.enable()

    assert ann.do(work if world.colour == "threads" else task) == 1
    world.until_free()


def test_the_last_handles_released_by_two_threads_at_once_end_the_hold(world_of_threads: World) -> None:
    world = world_of_threads
    lock = world.connect().rlock(world.name)
    ann, bob = world.actors(2)
    for _ in range(50):
        handles: list[Any] = [ann.do(lock.acquire) for _ in range(2)]
        jobs = [actor.start(handle.release) for actor, handle in zip((ann, bob), handles, strict=True)]
        assert [job.result(20) for job in jobs] == [True, True]
        assert world.nothing_left()
