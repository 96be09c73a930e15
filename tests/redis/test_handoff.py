"""A release lets the next waiter in at once: one of the same process, if no other process has waited longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.actors import Actor
from interlock.testing.remote import Remote
from interlock.testing.waiting import RENEWED, WAIT_LIMIT, eventually
from interlock.testing.world import World
from tests.servers import Proxy
from tests.support.redis_worlds import Queued, connect_to


def let_go(actor: Actor, grant: Any) -> bool:
    """Release; call it again if it fails on a connection that was opened while the server did not answer."""

    def answer() -> list[bool]:
        try:
            return [actor.do(grant.release)]
        except StoreError:
            return []

    return eventually(answer)[0]


def test_a_successor_is_let_in_though_the_server_does_not_answer(
    world: World, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=0.5")
    queued = Queued(locks)
    lock = locks.lock(world.name)
    first = ann.do(lock.acquire)
    waiting = bob.start(lock.acquire)
    queued.until(1)
    proxy.black_hole()
    releasing = ann.start(first.release)
    second = waiting.result(5)
    assert second.held
    assert not first.held
    assert second.fence > first.fence
    with pytest.raises(StoreError):
        releasing.result(5)
    assert second.held
    proxy.restore()
    assert let_go(bob, second) is True
    assert ann.do(first.release) is True
    assert world.nothing_left()


def test_a_successor_whose_look_failed_is_released_for_good(
    world: World, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=0.2")
    queued = Queued(locks)
    lock = locks.lock(world.name, ttl=6)
    first = ann.do(lock.acquire)
    waiting = bob.start(lock.acquire)
    queued.until(1)
    proxy.black_hole()
    known = proxy.requests
    eventually(lambda: proxy.requests > known)  # bob looks, and gets no answer
    with pytest.raises(StoreError):
        ann.do(first.release)
    second = waiting.result(5)
    proxy.restore()
    assert let_go(bob, second) is True
    assert second.id not in [view.id for view in world.eye.claims(world.name)]
    assert ann.do(first.release) is True
    assert world.nothing_left()


def test_who_leaves_first_on_the_server_does_not_matter(world: World, proxy: Proxy) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=0.5")
    queued = Queued(locks)
    lock = locks.lock(world.name)
    ann, bob, carol = world.actors(3)
    first = ann.do(lock.acquire)
    to_bob = bob.start(lock.acquire)
    queued.until(1)
    to_carol = carol.start(lock.acquire)
    queued.until(2)
    proxy.black_hole()
    with pytest.raises(StoreError):
        ann.do(first.release)
    proxy.restore()
    second = to_bob.result(5)
    assert let_go(bob, second) is True  # for the server, ann holds the lock
    third = to_carol.result(5)
    assert [view.id for view in world.holders()] == [first.id]
    assert ann.do(first.release) is True
    assert [(view.id, view.fence) for view in world.holders()] == [(third.id, third.fence)]
    assert first.fence < second.fence < third.fence
    assert carol.do(third.release) is True
    assert world.nothing_left()


def test_a_successor_that_gives_up_is_passed_over(world: World, proxy: Proxy) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=0.5")
    queued = Queued(locks)
    lock = locks.lock(world.name)
    ann, bob, carol = world.actors(3)
    first = ann.do(lock.acquire)
    brief = bob.start(lock.acquire, timeout=RENEWED)
    queued.until(1)
    waiting = carol.start(lock.acquire)
    queued.until(2)
    assert brief.result(WAIT_LIMIT) is None
    proxy.black_hole()
    releasing = ann.start(first.release)
    assert waiting.result(5).held
    with pytest.raises(StoreError):
        releasing.result(5)
    proxy.restore()
    assert let_go(carol, waiting.result()) is True
    assert ann.do(first.release) is True
    assert world.nothing_left()


def test_an_evicted_successor_stands_in_line_again(world: World, locks: Any) -> None:
    queued = Queued(locks)
    lock = locks.lock(world.name)
    ann, bob, carol = world.actors(3)
    grant = ann.do(lock.acquire)
    to_bob = bob.start(lock.acquire)
    queued.until(1)
    to_carol = carol.start(lock.acquire)
    queued.until(2)
    (evicted, stays) = (view.id for view in world.waiters())
    assert world.eye.evict(world.name, evicted) == 1
    eventually(lambda: [view.id for view in world.waiters()][:1] == [stays] and len(world.waiters()) == 2)
    assert ann.do(grant.release) is True
    third = to_carol.result(5)
    assert carol.do(third.release) is True
    second = to_bob.result(5)
    assert grant.fence < third.fence < second.fence
    assert bob.do(second.release) is True
    assert world.nothing_left()


def test_nobody_overtakes_another_process(world: World, remote: Callable[[], Remote], locks: Any) -> None:
    lock = locks.lock(world.name)
    ann, bob, carol = world.actors(3)
    other = remote()
    grant = ann.do(lock.acquire)
    to_bob = bob.start(lock.acquire)
    world.until_waiting(1)
    other.start(f"grant = locks.lock({world.name!r}).acquire(); result = grant.fence")
    world.until_waiting(2)
    to_carol = carol.start(lock.acquire)
    world.until_waiting(3)
    assert ann.do(grant.release) is True
    second = to_bob.result(5)
    assert len(world.waiters()) == 2
    assert bob.do(second.release) is True
    third = other.answer()
    assert not to_carol.done()
    assert other.do("result = grant.release()") is True
    fourth = to_carol.result(5)
    assert second.fence < third < fourth.fence
    assert carol.do(fourth.release) is True
