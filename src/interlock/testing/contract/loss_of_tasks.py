"""Loss in a task: the body is cancelled, and ends in LockLost and no more."""

import asyncio

import pytest

from interlock.core.errors import LockLost
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.contract.loss import until_lost
from interlock.testing.faults import Failing, Stuck
from interlock.testing.waiting import RENEWED, moment, since
from interlock.testing.world import Kind, World


@of_tasks
def test_the_body_of_a_task_is_cancelled(world: World, kind: Kind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    with pytest.raises(LockLost):
        ann.within(lock, lambda grant: world.eye.evict(world.name) and asyncio.sleep(20))
    assert world.nothing_left()


@of_tasks
def test_the_body_of_a_task_is_cancelled_at_the_deadline_though_a_renewal_hangs(world: World) -> None:
    locks, stuck = world.connect_with(lambda store: Stuck(store, 8.0))
    stuck.names.add(world.name)
    started = moment()
    with pytest.raises(LockLost):
        world.actor().within(locks.lock(world.name, ttl=RENEWED), lambda grant: asyncio.sleep(20))
    assert since(started) < stuck.seconds / 2
    assert stuck.hangs >= 1


@of_tasks
def test_the_task_itself_goes_on_after_the_loss(world: World) -> None:
    lock = world.connect().lock(world.name, ttl=RENEWED)

    async def story() -> tuple[int, str]:
        try:
            async with lock:
                world.eye.evict(world.name)
                await asyncio.sleep(20)
        except LockLost:
            pass
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        return task.cancelling(), "went on"

    assert world.run(story()) == (0, "went on")


@of_tasks
def test_a_body_that_swallows_its_cancellation_still_ends_in_lock_lost(world: World) -> None:
    lock = world.connect().lock(world.name, ttl=RENEWED)

    async def story() -> int:
        with pytest.raises(LockLost):
            async with lock:
                world.eye.evict(world.name)
                try:
                    await asyncio.sleep(20)
                except asyncio.CancelledError:
                    pass
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert world.run(story()) == 0


@of_tasks
def test_a_cancellation_from_outside_is_not_swallowed_by_the_loss(world: World) -> None:
    lock = world.connect().lock(world.name, ttl=RENEWED)

    async def body() -> None:
        async with lock as grant:
            world.eye.evict(world.name)
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                assert grant.lost
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # somebody else wants it to end, just now
                raise

    async def story() -> str:
        task = asyncio.ensure_future(body())
        await asyncio.wait([task])
        return "cancelled" if task.cancelled() else repr(task.exception())

    assert world.run(story()) == "cancelled"


@of_tasks
def test_a_time_limit_around_the_body_stays_one(world: World) -> None:
    lock = world.connect().lock(world.name)

    async def story() -> None:
        async with asyncio.timeout(0.1):
            async with lock:
                await asyncio.sleep(20)

    with pytest.raises(TimeoutError) as caught:
        world.run(story())
    assert not isinstance(caught.value, LockLost)
    assert world.nothing_left()


@of_tasks
def test_a_loss_in_a_task_group_is_its_failure(world: World) -> None:
    lock = world.connect().lock(world.name, ttl=RENEWED)

    async def body() -> None:
        async with lock:
            world.eye.evict(world.name)
            await asyncio.sleep(20)

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(body())
            group.create_task(asyncio.sleep(20))

    with pytest.raises(ExceptionGroup) as caught:
        world.run(story())
    assert [type(error) for error in caught.value.exceptions] == [LockLost]


@of_tasks
def test_a_loss_cancels_nobody_who_has_left_the_body(world: World) -> None:
    locks, failing = world.connect_with(Failing)
    lock = locks.lock(world.name, ttl=RENEWED)

    async def story() -> str:
        async with lock:
            pass
        grant = await lock.acquire()  # without a body
        failing.broken.add("renew")
        await until_lost(grant)
        await asyncio.sleep(0.1)  # a cancellation would come now
        return "went on"

    assert world.run(story()) == "went on"
