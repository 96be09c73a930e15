"""Waiting: a release wakes one waiter by an event, without busy waiting; no wake-up is lost."""

import asyncio
import time
from typing import Any

from interlock.testing.actors import Actor, results
from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.faults import Counting, Stepwise
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import eventually, moment, since

CROWD = 20
POLLS_SEEN = 6  # the most polls per second of each waiter that gets no notification
POLL_DELAY = 0.2  # seconds; a poll takes longer, also on a busy machine: see `since`


def test_a_release_wakes_the_waiter_soon(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    times = []
    for _ in range(7):
        holder = ann.do(kind.rival(locks, world.name).acquire)
        waiting = world.in_line(bob.start, kind.make(locks, world.name).acquire)
        started = moment()
        ann.do(holder.release)
        grant = waiting.result(20)
        times.append(since(started))
        bob.do(grant.release)
    assert sorted(times)[-2] < POLL_DELAY, times  # one may have met a stall of the machine


def test_waiters_do_not_spin(world: ContractWorld, ann: Actor) -> None:
    locks, counting = world.connect_with(Counting)
    holder = ann.do(world.connect().lock(world.name).acquire)
    jobs = [actor.start_within(locks.lock(world.name), lambda grant: None) for actor in world.actors(CROWD)]
    world.until_waiting(CROWD)
    before = sum(counting.steps.values())
    deadline = time.monotonic() + 1
    eventually(lambda: time.monotonic() > deadline)
    assert sum(counting.steps.values()) - before <= POLLS_SEEN * CROWD
    ann.do(holder.release)
    results(jobs)


def test_a_release_wakes_one_not_all(world: ContractWorld, ann: Actor) -> None:
    locks, counting = world.connect_with(Counting)
    holder = ann.do(world.connect().lock(world.name).acquire)
    jobs = [actor.start_within(locks.lock(world.name), lambda grant: None) for actor in world.actors(CROWD)]
    world.until_waiting(CROWD)
    before = sum(counting.steps.values())
    started = time.monotonic()
    ann.do(holder.release)
    results(jobs)
    polls = POLLS_SEEN * CROWD * (time.monotonic() - started)
    assert sum(counting.steps.values()) - before <= 8 * CROWD + polls


def test_an_uncontended_pair_is_one_step_each(world: ContractWorld, ann: Actor) -> None:
    locks, counting = world.connect_with(Counting)
    for _ in range(10):
        ann.do(ann_release := ann.do(locks.lock(world.name).acquire).release)
        assert ann_release is not None
    assert counting.steps["enter"] == 10
    assert counting.steps["leave"] == 10
    assert set(counting.steps) <= {"enter", "leave"}


@of_tasks
def test_no_wakeup_is_missed_whenever_the_release_comes(world: ContractWorld) -> None:
    locks = world.connect(Stepwise)  # one client: a store of records notifies only within it
    waiting, holding = locks.lock(world.name), locks.lock(world.name)

    async def story(steps: int) -> float:
        holder = await holding.acquire()
        waiter = asyncio.ensure_future(waiting.acquire())
        for _ in range(steps):
            await asyncio.sleep(0)
        started = moment()
        await holder.release()
        grant = await waiter
        took = since(started)
        await grant.release()
        return took

    slow = [steps for steps in range(40) if world.run(story(steps)) > POLL_DELAY]
    assert len(slow) <= 1  # one may have met a stall of the machine
