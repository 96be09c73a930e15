"""The end of a connection, of an event loop, of a thread and of a task."""

import asyncio
import gc
import warnings
from typing import Any

import pytest

from interlock.core.errors import LockLost, StoreError
from interlock.core.failures import NoAnswer
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED


def test_close_releases_what_is_still_held(world: ContractWorld, kind: LockKind, locks: Any, ann: Actor) -> None:
    grant = ann.do(kind.make(locks, world.name).acquire)
    ann.do(locks.close)
    assert world.nothing_left()
    assert grant.held is False
    assert ann.do(grant.release) is False


def test_close_may_be_repeated(world: ContractWorld, locks: Any, ann: Actor) -> None:
    for _ in range(3):
        ann.do(locks.close)


def test_a_closed_connection_says_so(world: ContractWorld, kind: LockKind, locks: Any, ann: Actor) -> None:
    lock = kind.make(locks, world.name)
    ann.do(locks.close)
    for call in (lock.acquire, lock.locked, locks.claims):
        with pytest.raises(StoreError, match="closed"):
            ann.do(call)


def test_close_hands_over_to_those_who_wait(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    ann.do(locks.lock(world.name).acquire)
    waiting = world.in_line(bob.start, world.connect().lock(world.name).acquire)
    ann.do(locks.close)
    assert waiting.result(20) is not None


def test_closing_one_connection_does_not_disturb_another(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    one, other = world.connect(), world.connect()
    kept = bob.do(other.lock(world.name).acquire)
    ann.do(one.lock(world.fresh_name()).acquire)
    ann.do(one.close)
    assert bob.do(kept.renew) is True
    assert bob.do(kept.release) is True


def test_a_close_that_fails_to_release_reports_it_and_closes(world: ContractWorld, ann: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    parts = [world.fresh_name() for _ in range(3)]
    for part in parts:
        ann.do(locks.lock(part, ttl=RENEWED).acquire)
    failing.names.add(parts[1])
    failing.broken.add("leave")
    with pytest.raises(StoreError, match="by order of the test"):
        ann.do(locks.close)
    assert [world.nothing_left(part) for part in (parts[0], parts[2])] == [True, True]
    assert failing.closed is True
    with pytest.raises(StoreError, match="closed"):
        ann.do(locks.lock(world.name).acquire)
    world.until_free(parts[1])  # its lease is not renewed any more
    ann.do(locks.close)


@pytest.mark.parametrize("error", [StoreError, NoAnswer])
def test_no_grant_of_a_closed_connection_is_held_by_two(
    world: ContractWorld, error: type[Exception], ann: Actor
) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=error))
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(3)]
    failing.broken.add("leave")
    with pytest.raises(error):
        ann.do(locks.close)
    assert not [grant for grant in grants if world.eye.lock(grant.name).acquire(timeout=0) and grant.held]


@of_tasks
def test_no_grant_of_an_ended_loop_is_held_by_two(world: ContractWorld, kind: LockKind, locks: Any) -> None:
    with warnings.catch_warnings():  # an ended loop leaves objects that only its own tasks could close
        warnings.simplefilter("ignore", ResourceWarning)
        _in_two_loops(world, kind, locks)
        gc.collect()


def _in_two_loops(world: ContractWorld, kind: LockKind, locks: Any) -> None:
    lost: list[Any] = []

    async def acquired() -> Any:
        return await kind.make(locks, world.name, ttl=RENEWED, renew=False, on_lost=lost.append).acquire()

    async def something_else() -> None:
        async with locks.lock(world.fresh_name()):
            pass
        await locks.close()

    grant = asyncio.run(acquired())
    rival = kind.rival(world.eye, world.name)
    assert rival.acquire(timeout=0) is None
    asyncio.run(something_else())
    got = rival.acquire(timeout=0)
    assert not (got and grant.held)
    assert not got or [each.id for each in lost] == [grant.id]
    assert got or rival.acquire(timeout=20)
    with pytest.raises(LockLost):
        grant.check()


def test_a_grant_outlives_the_thread_or_task_that_acquired_it(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    lock = world.connect().lock(world.name, ttl=RENEWED)
    grant = ann.do(lock.acquire)
    ann.end()
    assert grant.held is True
    assert bob.do(lock.acquire, timeout=0) is None
    assert bob.do(lock.owned) is False
    assert bob.do(grant.release) is True
    assert world.nothing_left()


def test_what_was_dropped_without_a_release_is_released_by_close(world: ContractWorld, locks: Any) -> None:
    _drop(world, locks.lock(world.name))
    assert world.holders()
    world.actor().do(locks.close)
    assert world.nothing_left()


def _drop(world: ContractWorld, lock: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        world.actor().do(lock.acquire)
        del lock
        gc.collect()
