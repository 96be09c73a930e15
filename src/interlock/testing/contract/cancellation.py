"""Cancellations and interrupts at any moment: no claim is left behind, and no lock is reported lost that is held."""

import asyncio
import threading
from typing import Any

import pytest

from interlock.client.cancel import Cancel
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.faults import Stepwise
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, lasting, until_renewed

MOMENTS = 60  # more than the points at which an acquire can be cancelled
ROUNDS = 40
INSTANT = 2e-5  # seconds
NOTIFIED_WITHIN = 0.4  # seconds, on a busy machine; the quickest poll takes half a second
UNDONE_WITHIN = 4.0  # seconds; much less than the lease of a claim that is left behind


async def cancelled_at(moment: int, work: Any) -> Any:
    """Run `work` as a task, cancel it after some rounds of the loop; return its result, or None if cancelled.

    Later moments also take some time, for stores on a server.
    """
    task = asyncio.ensure_future(work)  # itself, if it runs already
    for _ in range(moment):
        await asyncio.sleep(0 if moment <= ROUNDS else INSTANT)
    task.cancel()
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


async def until_waiting(world: ContractWorld, number: int) -> None:
    """Let the loop run until a number of claims wait."""
    while len(world.waiters()) < number:  # noqa: ASYNC110 - no event of ours: it is looked at from outside
        await asyncio.sleep(0)


@of_tasks
def test_an_acquire_cancelled_at_any_moment_leaves_nothing(world: ContractWorld, kind: LockKind) -> None:
    lock = kind.make(world.connect(Stepwise), world.name)

    async def story(moment: int) -> bool:
        grant = await cancelled_at(moment, lock.acquire())
        return grant is not None and await grant.release()

    answers = []
    for moment in range(MOMENTS):
        answers.append(world.run(story(moment)))
        # A cancelled request may reach the server a moment later, followed by the request that undoes it.
        world.until_free(within=UNDONE_WITHIN)
        assert not world.run(_owned(lock))
    assert answers[0] is False
    assert world.run(lock.acquire()) is not None


@of_tasks
def test_a_wait_cancelled_during_the_hand_over_leaves_nothing(world: ContractWorld) -> None:
    locks = world.connect(Stepwise)
    lock, other = locks.lock(world.name), world.connect().lock(world.name)

    async def story(moment: int) -> None:
        holder = await other.acquire()
        waiter = asyncio.ensure_future(lock.acquire())
        await until_waiting(world, 1)
        await holder.release()
        grant = await cancelled_at(moment, waiter)
        assert grant is None or await grant.release() is True

    for moment in range(30):
        world.run(story(moment))
        assert world.nothing_left(), moment


@of_tasks
def test_a_cancelled_waiter_hands_on_to_those_behind_it(world: ContractWorld) -> None:
    lock = world.connect(Stepwise).lock(world.name)
    plain = world.connect().lock(world.name)

    async def story(moment: int) -> bool:
        holder = await plain.acquire()
        first = asyncio.ensure_future(lock.acquire())
        await until_waiting(world, 1)
        second = asyncio.ensure_future(plain.acquire())
        await until_waiting(world, 2)
        await holder.release()
        grant = await cancelled_at(moment, first)
        if grant is not None:
            await grant.release()
        async with asyncio.timeout(5):
            return bool(await (await second).release())

    for moment in range(0, 30, 2):
        assert world.run(story(moment)) is True
        assert world.nothing_left()


@of_tasks
def test_a_release_cancelled_at_any_moment_is_done_or_repeatable(world: ContractWorld, kind: LockKind) -> None:
    lost: list[Any] = []
    locks = world.connect(Stepwise)
    lock = kind.make(locks, world.name, ttl=2 * RENEWED, on_lost=lost.append)

    async def story(moment: int) -> bool:
        grant = await lock.acquire()
        answer = await cancelled_at(moment, grant.release())
        if answer is None and not world.nothing_left():
            answer = await grant.release()
        assert not grant.lost, moment
        return answer is not False

    for moment in range(20):
        assert world.run(story(moment)), moment
        assert world.nothing_left()
    # Renewed after 2.2 s, when the released ones would have been renewed twice.
    until_renewed(world.run(locks.lock(world.fresh_name(), ttl=6.6).acquire()))
    assert lost == []


@of_tasks
@pytest.mark.parametrize("change", ["release", "evict"])
def test_who_follows_is_notified_though_the_change_was_cancelled(world: ContractWorld, change: str) -> None:
    locks = world.connect()
    lock = locks.lock(world.name)

    async def story(at: int) -> None:
        holder = await lock.acquire()
        waiter = asyncio.ensure_future(lock.acquire())
        await until_waiting(world, 1)
        await cancelled_at(at, holder.release() if change == "release" else locks.evict(world.name, holder.id))
        with lasting(0.0, NOTIFIED_WITHIN):
            if holder.id in [claim.id for claim in await locks.claims(world.name)]:  # nothing was done
                await holder.release()
            grant = await waiter
        await grant.release()

    for at in range(20):
        world.run(story(at))


@of_tasks
def test_a_body_cancelled_while_it_leaves_gives_the_lock_back(world: ContractWorld, kind: LockKind) -> None:
    lost: list[Any] = []
    lock = kind.make(world.connect(Stepwise), world.name, on_lost=lost.append)

    async def body() -> None:
        async with lock:
            await asyncio.sleep(0)

    for moment in range(MOMENTS):
        world.run(cancelled_at(moment, body()))
        world.until_free(within=UNDONE_WITHIN)  # as above
        assert not world.run(_owned(lock))
    assert lost == []


@of_tasks
def test_a_crowd_of_tasks_half_of_them_cancelled_loses_no_update(world: ContractWorld) -> None:
    lock = world.connect(Stepwise).lock(world.name)
    box, entered = [0], [0]

    async def visit() -> None:
        async with lock:
            seen = box[0]
            await asyncio.sleep(0)
            box[0] = seen + 1
            entered[0] += 1

    async def story() -> None:
        tasks = [asyncio.ensure_future(visit()) for _ in range(40)]
        for number, task in enumerate(tasks):
            for _ in range(number % 7):
                await asyncio.sleep(0)
            if number % 2:
                task.cancel()
        await asyncio.wait(tasks)

    world.run(story())
    assert box == entered
    assert entered[0] >= 20
    world.until_free(within=UNDONE_WITHIN)


async def _owned(lock: Any) -> bool:
    return bool(lock.owned())


@pytest.mark.parametrize("kind", [Cancel, threading.Event], ids=["Cancel", "Event"])
def test_an_acquire_that_waits_is_called_off(
    world: ContractWorld, kind: Any, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    cancel = kind()
    waiting = bob.start(world.connect().lock(world.name).acquire, cancel=cancel)
    if "detach" in locks.store.features:
        world.until_waiting(1)
    cancel.set()
    assert waiting.result(20) is None
    assert not world.waiters()
    assert bob.do(locks.lock(world.name).acquire, cancel=cancel) is None
    ann.do(grant.release)
    assert world.nothing_left()
    assert bob.do(locks.lock(world.name).acquire, cancel=kind()).held


def test_all_and_rlock_are_called_off_too(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    other = world.fresh_name()
    for lock in (locks.all(other, world.name), locks.rlock(world.name)):
        cancel = Cancel()
        waiting = bob.start(lock.acquire, cancel=cancel)
        if "detach" in locks.store.features:
            world.until_waiting(1)
        cancel.set()
        assert waiting.result(20) is None
    ann.do(grant.release)
    assert world.eye.claims(world.name) == world.eye.claims(other) == []
