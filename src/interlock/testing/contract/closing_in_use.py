"""close() while others wait or hold: called by a waiter, on_lost or a signal handler, cancelled, interrupted."""

import asyncio
import signal
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.actors import Actor, Gate
from interlock.testing.contract.fixtures import needs_signals, of_tasks, of_threads, struck_while_it_waits
from interlock.testing.faults import Slow
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually, moment, since

SOON = 5.0  # seconds, on a busy machine; far less than a lease


def _closed_while_it_waited(waiting: "Future[Any]", says: str = "closed while waiting") -> bool:
    with pytest.raises(StoreError, match=says):
        waiting.result(SOON)
    return True


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("holds", [False, True], ids=["waits only", "holds too"])
def test_waiters_of_a_connection_give_up_when_it_is_closed(
    world: ContractWorld, number: int, holds: bool, locks: Any, ann: Actor, bob: Actor
) -> None:
    held = ann.do((locks if holds else world.connect()).lock(world.name).acquire)
    lock = locks.lock(world.name)
    jobs = [world.in_line(actor.start, lock.acquire) for actor in world.actors(number)]
    other = world.in_line(bob.start, world.connect().lock(world.name).acquire)
    started = moment()
    world.actor().do(locks.close)
    if not holds:
        assert len(world.waiters()) == 1  # no claim of the closed client is left when close() returns
        assert ann.do(held.release) is True
    assert other.result(SOON).held is True  # immediately, not when the leases of the others end
    assert since(started) < SOON
    assert held.held is False
    assert all(_closed_while_it_waited(job) for job in jobs)
    assert [view.id for view in world.eye.claims(world.name)] == [other.result().id]


def test_concurrent_closes_end_while_a_waiter_gives_up(world: ContractWorld, locks: Any, bob: Actor) -> None:
    held = world.actor().do(world.connect().lock(world.name).acquire)
    lock = locks.lock(world.name)
    waiting, then = world.in_line(bob.start, lock.acquire), bob.start(locks.close)
    closing = [actor.start(locks.close) for actor in world.actors(4)]
    for job in (*closing, then):
        job.result(SOON)
    assert _closed_while_it_waited(waiting)
    eventually(lambda: [view.id for view in world.eye.claims(world.name)] == [held.id], within=SOON)


@of_threads
def test_closing_by_on_lost(world: ContractWorld, locks: Any, ann: Actor) -> None:
    closed: list[bool] = []
    lock = locks.lock(world.name, ttl=RENEWED, on_lost=lambda grant: closed.append(locks.close() is None))
    kept = ann.do(lock.acquire), ann.do(locks.lock(world.fresh_name()).acquire)
    world.eye.evict(world.name)
    eventually(lambda: closed, within=SOON)
    assert [grant.held for grant in kept] == [False, False]
    assert world.nothing_left(kept[1].name)


def test_closing_in_the_middle_of_others_work_leaves_nothing(world: ContractWorld) -> None:
    for _ in range(5):
        locks = world.connect()
        lock = locks.lock(world.name)
        gate = world.gate()
        taken: list[int] = []
        jobs = [actor.start(_until_closed, world, lock, gate, taken) for actor in world.actors(3)]
        ann = world.actor()
        gate.open()
        # Not by waiting for a visible claim: threads may switch only at moments without one.
        eventually(taken.copy)
        ann.do(locks.close)
        assert {job.result(SOON) for job in jobs} == {"closed"}
        assert world.nothing_left()


def _until_closed(world: ContractWorld, lock: Any, gate: Gate, taken: list[int]) -> Any:
    def steps() -> Generator[Any, Any, str]:
        yield from world.result(gate.wait())
        while True:
            try:
                grant = yield from world.result(lock.acquire())
                taken.append(grant.fence)
                yield from world.result(world.pause())
                yield from world.result(grant.release())
            except StoreError as error:
                return "closed" if "closed" in str(error) else str(error)

    return world.function(steps)()


@of_tasks
def test_a_close_that_is_cancelled_comes_to_its_end(world: ContractWorld) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0.3, steps=("leave",)))
    grant = world.actor().do(locks.lock(world.name).acquire)

    async def story() -> str:
        closing = asyncio.ensure_future(locks.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        await asyncio.wait([closing])
        return "cancelled" if closing.cancelled() else repr(closing.exception())

    assert world.run(story()) == "cancelled"
    assert slow.delay == 0.3
    assert grant.held is False
    assert world.nothing_left()


@needs_signals
@of_threads
def test_close_in_a_signal_handler_while_the_main_thread_waits(world: ContractWorld, locks: Any) -> None:
    held = locks.lock(world.fresh_name()).acquire()
    blocker = world.actor().do(world.connect().lock(world.name).acquire)
    started = moment()
    with struck_while_it_waits(world, signal.SIGUSR1, lambda *_: locks.close()):
        with pytest.raises(StoreError, match="closed"):
            locks.lock(world.name).acquire(timeout=20)
    assert since(started) < SOON
    # A store whose statement was interrupted may release only after the interrupted call has continued.
    eventually(lambda: held.held is False)
    eventually(lambda: world.nothing_left(held.name))
    assert eventually(lambda: [view.id for view in world.eye.claims(world.name)] == [blocker.id])
