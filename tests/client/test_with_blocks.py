"""Bodies: a `with` block yields the grant and releases it at its end, also around a grant acquired before."""

import asyncio
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, eventually


def test_with_gives_the_grant_and_releases_at_the_end(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    seen = ann.within(lock, lambda grant: (grant.held, grant.id, [view.id for view in world.holders()]))
    assert seen == (True, seen[1], [seen[1]])
    assert world.nothing_left()


def test_with_releases_when_the_body_fails(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)

    def body(grant: object) -> None:
        raise KeyError("of the body")

    with pytest.raises(KeyError, match="of the body"):
        ann.within(lock, body)
    assert world.nothing_left()


def test_with_acquire_gives_the_grant_and_releases_at_the_end(
    world: ContractWorld, kind: LockKind, ann: Actor
) -> None:
    lock = kind.make(world.connect(), world.name)
    grant = ann.do(lock.acquire, timeout=5)
    seen = ann.within(grant, lambda entered: (entered is grant, entered.held, len(world.holders())))
    assert seen == (True, True, 1)
    assert world.nothing_left()
    assert (grant.held, grant.lost, ann.do(lock.owned)) == (False, False, False)
    assert ann.within(ann.do(lock.acquire), lambda entered: entered.release()) is True
    assert world.nothing_left()


@of_tasks
def test_with_acquire_cancels_the_body_after_a_loss(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name, ttl=RENEWED)
    reached: list[str] = []

    async def body(grant: object) -> None:
        world.eye.evict(world.name)
        await asyncio.sleep(60)
        reached.append("the end")

    with pytest.raises(LockLost):
        ann.within(ann.do(lock.acquire), body)
    assert reached == []
    assert ann.within(lock, lambda grant: grant.held) is True


def test_a_grant_not_held_or_already_entered_is_refused(
    world: ContractWorld, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    lock = kind.make(world.connect(), world.name)
    released = ann.do(lock.acquire)
    ann.do(released.release)
    with pytest.raises(NotHeld):
        ann.within(released, print)
    lost = ann.do(lock.acquire)
    world.eye.evict(world.name)
    assert ann.do(lost.renew) is False
    with pytest.raises(LockLost):
        ann.within(lost, print)
    leave = world.gate()
    within: list[Any] = []

    def body(grant: Any) -> Any:
        within.append(grant)
        return leave.wait()

    working = ann.start_within(lock, body)
    inside_grant = eventually(lambda: within)[0]
    with pytest.raises(NotHeld, match="already"):
        bob.within(inside_grant, print)
    assert inside_grant.held is True
    leave.open()
    working.result(20)
    assert world.nothing_left()


def test_a_grant_that_was_acquired_by_another_may_be_entered(
    world: ContractWorld, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    lock = kind.make(world.connect(), world.name)
    assert bob.within(ann.do(lock.acquire), lambda grant: grant.held) is True
    assert world.nothing_left()
    assert ann.do(lock.owned) is False


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, TimeoutError])
def test_a_failed_release_keeps_the_exception_of_the_body(world: ContractWorld, error: type[BaseException]) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, "leave"))
    lock = locks.lock(world.name, ttl=RENEWED)
    raised = error("of the body")

    def body(grant: Any) -> None:
        raise raised

    with pytest.raises(error) as caught:
        world.actor().within(lock, body)
    assert caught.value is raised
    assert any("could not be released" in note for note in raised.__notes__)
    with pytest.raises(StoreError, match="by order of the test"):
        world.actor().within(locks.lock(world.fresh_name(), ttl=RENEWED), lambda grant: None)
    failing.broken.clear()
    world.until_free()


@of_tasks
def test_a_cancelled_body_stays_cancelled_if_the_release_fails(world: ContractWorld) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, "leave"))

    async def cancelled() -> bool:
        async def works() -> None:
            async with locks.lock(world.name, ttl=RENEWED):
                inside.set()
                await asyncio.sleep(20)

        inside = asyncio.Event()
        task = asyncio.create_task(works())
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert world.run(cancelled()) is True
    failing.broken.clear()
    world.until_free()
