"""Order: strictly first come, first served; no claim overtakes, none starves."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from interlock.testing.actors import Actor, results
from interlock.testing.contract.fixtures import of_threads
from interlock.testing.other_process import Remote
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, WAIT_LIMIT, eventually

SHORT = 1.0  # seconds: a lease that is shorter than the wait
SECTION = " with lock as grant: result.append(grant.fence)"
MOST_PASSES = 5  # sections of others before a waiter of another process gets the lock, on a store without `order`


def line_up(world: ContractWorld, locks: Sequence[Any], order: list[int]) -> list[Any]:
    """Let one actor after the other enter the line; each writes its number into `order` when it holds the lock."""
    return [
        world.in_line(world.actor().start_within, lock, lambda grant, number=number: order.append(number))
        for number, lock in enumerate(locks)
    ]


def test_waiters_get_it_in_the_order_of_their_arrival(world: ContractWorld, locks: Any, ann: Actor) -> None:
    order: list[int] = []
    grant = ann.do(locks.lock(world.name).acquire)
    jobs = line_up(world, [world.connect().lock(world.name) for _ in range(8)], order)
    ann.do(grant.release)
    results(jobs)
    assert order == list(range(8))


@of_threads
def test_a_process_that_waits_is_not_passed_by_another(world: ContractWorld, locks: Any, ann: Actor) -> None:
    if world.place.url is None:
        return  # the lines of this store are in one process
    grant = ann.do(locks.lock(world.name).acquire)
    with closing(Remote(world.place.url)) as first, closing(Remote(world.place.url)) as greedy:
        first.start(f"with locks.lock({world.name!r}) as grant: result = grant.fence")
        world.until_waiting(1)
        greedy.start(f"lock, result = locks.lock({world.name!r}), []\nfor _ in range(20):\n" + SECTION)
        world.until_waiting(2)
        ann.do(grant.release)
        fence, others = first.answer(), greedy.answer()
    assert others == sorted(set(others))
    passed = sum(each < fence for each in others)
    assert passed == 0 if "order" in locks.store.features else passed <= MOST_PASSES


@of_threads
def test_a_waiter_keeps_its_place_for_longer_than_its_lease(world: ContractWorld, locks: Any, ann: Actor) -> None:
    if world.place.url is None:
        return  # the lines of this store are in one process
    grant = ann.do(locks.lock(world.name).acquire)
    with closing(Remote(world.place.url)) as first, closing(Remote(world.place.url)) as second:
        for each, ttl in ((first, SHORT), (second, 30)):
            before = len(world.waiters())
            each.start(f"with locks.lock({world.name!r}, ttl={ttl}) as grant: result = grant.fence")
            world.until_waiting(before + 1)
        entered = time.monotonic()
        eventually(lambda: time.monotonic() - entered > 3 * (SHORT + 2 * world.place.clock_error))
        ann.do(grant.release)
        assert first.answer() < second.answer()


def test_who_releases_and_comes_again_stands_at_the_end(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    mine = locks.lock(world.name)
    for _ in range(5):
        grant = ann.do(mine.acquire)
        waiting = world.in_line(bob.start, kind.make(locks, world.name).acquire)
        again = ann.start(lambda held=grant: held.release())
        later = ann.start(mine.acquire)
        other = waiting.result(20)
        assert again.result(20) is True
        assert not later.done()
        bob.do(other.release)
        ann.do(later.result(20).release)


def test_a_try_does_not_barge_past_waiters(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    reader = ann.do(locks.rwlock(world.name).read().acquire)
    writer = world.in_line(bob.start, locks.rwlock(world.name).write().acquire)
    assert eve.do(locks.rwlock(world.name).read().acquire, timeout=0) is None
    assert eve.do(locks.rwlock(world.name).read().acquire, blocking=False) is None
    ann.do(reader.release)
    bob.do(writer.result(20).release)


def test_a_writer_is_not_starved_by_readers(world: ContractWorld, locks: Any, ann: Actor) -> None:
    rw = locks.rwlock(world.name)
    order: list[int] = []
    reader = ann.do(rw.read().acquire)
    jobs = line_up(world, [rw.write(), rw.read(), rw.read(), rw.write(), rw.read()], order)
    assert order == []
    ann.do(reader.release)
    results(jobs)
    assert order[0] == 0
    assert sorted(order[1:3]) == [1, 2]
    assert order[3:] == [3, 4]


def test_a_big_request_at_the_head_is_not_overtaken(world: ContractWorld, locks: Any, ann: Actor, eve: Actor) -> None:
    order: list[int] = []
    held = [ann.do(locks.semaphore(world.name, 4).acquire) for _ in range(2)]
    jobs = line_up(world, [locks.semaphore(world.name, 4, units=4), locks.semaphore(world.name, 4)], order)
    assert eve.do(locks.semaphore(world.name, 4).acquire, timeout=0) is None
    ann.do(held[0].release)
    assert eve.do(locks.semaphore(world.name, 4).acquire, timeout=0) is None
    assert order == []
    ann.do(held[1].release)
    results(jobs)
    assert order == [0, 1]


def test_a_waiter_that_gives_up_does_not_disturb_the_order(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    order: list[int] = []
    grant = ann.do(locks.lock(world.name).acquire)
    first = line_up(world, [locks.lock(world.name)] * 2, order)
    short = world.in_line(bob.start, locks.lock(world.name).acquire, timeout=RENEWED)  # the others enter within it
    last = world.in_line(world.actor().start_within, locks.lock(world.name), lambda grant: order.append(2))
    assert short.result(20) is None
    world.until_waiting(3)
    ann.do(grant.release)
    results([*first, last])
    assert order == [0, 1, 2]


def test_when_the_head_gives_up_those_behind_who_fit_get_in(
    world: ContractWorld, ann: Actor, bob: Actor, eve: Actor
) -> None:
    rw = world.connect().rwlock(world.name)
    ann.do(rw.read().acquire)
    writer = world.in_line(bob.start, rw.write().acquire, timeout=RENEWED)  # the reader enters the line within it
    reader = world.in_line(eve.start, rw.read().acquire)
    assert writer.result(20) is None
    assert reader.result(WAIT_LIMIT) is not None
