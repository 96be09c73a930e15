"""The loss of a lock: the grant knows it, `check` and the end of `with` raise, the body of a task is cancelled."""

import asyncio
import logging
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.faults import Failing, Stuck
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, eventually, moment, since, until_renewed


def test_with_raises_on_leaving_when_the_lock_was_lost(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    with pytest.raises(LockLost) as caught:
        ann.within(lock, lambda grant: world.eye.evict(world.name) and None)
    assert world.name in str(caught.value)
    assert world.nothing_left()
    assert ann.do(lock.owned) is False


def test_the_exception_of_the_body_wins_over_the_loss(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)

    def body(grant: object) -> None:
        world.eye.evict(world.name)
        raise KeyError("of the body")

    with pytest.raises(KeyError, match="of the body") as caught:
        ann.within(lock, body)
    assert any("lost" in note for note in caught.value.__notes__)


def test_an_eviction_is_noticed_at_the_next_renewal(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor
) -> None:
    lost: list[Any] = []
    grant = ann.do(kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    world.eye.evict(world.name)
    eventually(lambda: lost, within=RENEWED + 1.5)
    assert [each.id for each in lost] == [grant.id]
    assert grant.lost is True
    with pytest.raises(LockLost, match="fence"):
        grant.check()
    assert ann.do(grant.release) is False
    assert grant.lost is True
    assert len(lost) == 1


@pytest.mark.parametrize("same", [True, False], ids=["same client", "another client"])
def test_an_eviction_by_this_process_is_noticed_at_once(
    world: ContractWorld, kind: LockKind, same: bool, ann: Actor
) -> None:
    lost: list[Any] = []
    locks = world.connect()
    evictor = locks if same else world.connect()
    grant = ann.do(kind.make(locks, world.name, on_lost=lost.append).acquire)
    kept = ann.do(locks.lock(world.fresh_name()).acquire)
    assert ann.do(evictor.evict, world.name) == 1
    assert not (same and grant.held)
    eventually(lambda: lost, within=SOON)
    assert [each.id for each in lost] == [grant.id]
    assert kept.held


def test_a_loss_outside_a_with_is_in_the_log(
    world: ContractWorld, caplog: pytest.LogCaptureFixture, locks: Any, ann: Actor
) -> None:
    other = world.fresh_name()
    grants = {
        world.name: ann.do(locks.lock(world.name, ttl=RENEWED).acquire),
        other: ann.do(locks.lock(other, ttl=RENEWED, on_lost=lambda grant: None).acquire),
    }

    def losses() -> list[str]:
        return [each for each in caplog.messages if "was lost" in each]

    with caplog.at_level(logging.WARNING, "interlock"):
        for name, grant in grants.items():
            world.eye.evict(name)
            said = eventually(losses)
            assert len(said) == 1
            assert f"{name!r} (fence {grant.fence})" in said[0]
            caplog.clear()


def test_nobody_is_told_of_a_loss_that_was_a_release(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor
) -> None:
    lost: list[Any] = []
    lock = kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append)
    for _ in range(30):
        grant = ann.do(lock.acquire)
        assert ann.do(grant.release) is True
        assert grant.lost is False
    # Renewed after 1.6 s, when the leases above would have ended.
    until_renewed(ann.do(locks.lock(world.fresh_name(), ttl=4.8).acquire))
    assert lost == []


def test_after_a_failed_release_renewals_stop_and_the_lease_ends(
    world: ContractWorld, kind: LockKind, ann: Actor
) -> None:
    locks, failing = world.connect_with(Failing)
    lost: list[Any] = []
    grant = ann.do(kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    failing.broken.add("leave")
    with pytest.raises(StoreError):
        ann.do(grant.release)
    assert grant.held is False
    with pytest.raises(NotHeld):
        grant.check()
    world.until_free()
    eventually(lambda: ann.do(grant.release) is False)
    assert grant.lost is False
    assert lost == []


SOON = 5.0  # seconds, on a busy machine; less than the 10 s after which a lease is renewed


async def until_lost(grant: Any) -> None:
    """Wait until the grant is lost."""
    while not grant.lost:  # noqa: ASYNC110 - a grant has no event to wait for
        await asyncio.sleep(0.01)


@of_tasks
def test_the_body_of_a_task_is_cancelled(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    with pytest.raises(LockLost):
        ann.within(lock, lambda grant: world.eye.evict(world.name) and asyncio.sleep(20))
    assert world.nothing_left()


@of_tasks
def test_a_body_is_cancelled_on_time_while_a_renewal_hangs(world: ContractWorld) -> None:
    locks, stuck = world.connect_with(lambda store: Stuck(store, 8.0))
    stuck.names.add(world.name)
    started = moment()
    with pytest.raises(LockLost):
        world.actor().within(locks.lock(world.name, ttl=RENEWED), lambda grant: asyncio.sleep(20))
    assert since(started) < stuck.seconds / 2
    assert stuck.hangs >= 1


@pytest.mark.parametrize("swallows", [False, True])
@of_tasks
def test_the_task_continues_after_the_loss_of_its_body(world: ContractWorld, swallows: bool) -> None:
    lock = world.connect().lock(world.name, ttl=RENEWED)

    async def story() -> int:
        with pytest.raises(LockLost):
            async with lock:
                world.eye.evict(world.name)
                with suppress(asyncio.CancelledError) if swallows else nullcontext():
                    await asyncio.sleep(20)
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert world.run(story()) == 0


@of_tasks
def test_a_loss_does_not_swallow_a_cancellation_from_outside(world: ContractWorld) -> None:
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
                task.cancel()  # a cancellation from outside at the same moment
                raise

    async def story() -> str:
        task = asyncio.ensure_future(body())
        await asyncio.wait([task])
        return "cancelled" if task.cancelled() else repr(task.exception())

    assert world.run(story()) == "cancelled"


@of_tasks
def test_a_time_limit_around_the_body_stays_one(world: ContractWorld) -> None:
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
def test_a_loss_in_a_task_group_is_its_failure(world: ContractWorld) -> None:
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
def test_a_loss_cancels_nobody_who_has_left_the_body(world: ContractWorld) -> None:
    locks, failing = world.connect_with(Failing)
    lock = locks.lock(world.name, ttl=RENEWED)

    async def story() -> str:
        async with lock:
            pass
        grant = await lock.acquire()  # without a body
        failing.broken.add("renew")
        await until_lost(grant)
        await asyncio.sleep(0.1)  # a cancellation would arrive now
        return "went on"

    assert world.run(story()) == "went on"
