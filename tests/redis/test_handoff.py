"""A release lets the next waiter in at once: one of the same process, if no other process has waited longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.actors import Actor
from interlock.testing.other_process import Remote
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, WAIT_LIMIT, eventually, throughout
from tests.servers import Proxy
from tests.support.redis_helpers import Line, connect_to


def let_go(actor: Actor, grant: Any) -> bool:
    """Release; call it again if it fails on a connection that was opened while the server did not answer."""

    def answer() -> list[bool]:
        try:
            return [actor.do(grant.release)]
        except StoreError:
            return []

    return eventually(answer)[0]


def test_a_successor_is_let_in_though_the_server_does_not_answer(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    line = Line(connect_to(world, proxy.url + "?socket_timeout=0.5"), world.name, ann)
    waiting = line.waits(bob)
    proxy.black_hole()
    releasing = ann.start(line.grant.release)
    second = waiting.result(5)
    assert second.held
    assert not line.grant.held
    assert second.fence > line.grant.fence
    with pytest.raises(StoreError):
        releasing.result(5)
    assert second.held
    proxy.restore()
    assert let_go(bob, second) is True
    assert ann.do(line.grant.release) is True
    assert world.nothing_left()


def test_a_waiter_that_others_count_begins_once_the_server_knows(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    lock = connect_to(world, proxy.url).lock(world.name, max_waiters=1)
    grant = ann.do(lock.acquire)
    waiting = world.in_line(bob.start, lock.acquire)
    proxy.hold()
    releasing = ann.start(grant.release)
    throughout(0.5, lambda: not waiting.done())  # who is refused now may rely on it
    proxy.pass_on()
    assert releasing.result(20) is True
    assert bob.do(waiting.result(20).release) is True


def test_a_successor_whose_look_failed_is_released_for_good(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    line = Line(connect_to(world, proxy.url + "?socket_timeout=0.2"), world.name, ann, ttl=6)
    waiting = line.waits(bob)
    proxy.black_hole()
    known = proxy.requests
    eventually(lambda: proxy.requests > known)  # bob looks, and gets no answer
    with pytest.raises(StoreError):
        ann.do(line.grant.release)
    second = waiting.result(5)
    proxy.restore()
    assert let_go(bob, second) is True
    assert second.id not in [view.id for view in world.eye.claims(world.name)]
    assert ann.do(line.grant.release) is True
    assert world.nothing_left()


def test_who_leaves_first_on_the_server_does_not_matter(world: ContractWorld, proxy: Proxy) -> None:
    ann, bob, carol = world.actors(3)
    line = Line(connect_to(world, proxy.url + "?socket_timeout=0.5"), world.name, ann)
    to_bob = line.waits(bob)
    to_carol = line.waits(carol)
    proxy.black_hole()
    with pytest.raises(StoreError):
        ann.do(line.grant.release)
    proxy.restore()
    second = to_bob.result(5)
    assert let_go(bob, second) is True  # for the server, ann may hold the lock
    third = to_carol.result(5)
    assert ann.do(line.grant.release) is True
    assert [(view.id, view.fence) for view in world.holders()] == [(third.id, third.fence)]
    assert line.grant.fence < second.fence < third.fence
    assert carol.do(third.release) is True
    assert world.nothing_left()


def test_a_successor_that_gives_up_is_passed_over(world: ContractWorld, proxy: Proxy) -> None:
    ann, bob, carol = world.actors(3)
    line = Line(connect_to(world, proxy.url + "?socket_timeout=0.5"), world.name, ann)
    brief = line.waits(bob, timeout=RENEWED)
    waiting = line.waits(carol)
    assert brief.result(WAIT_LIMIT) is None
    proxy.black_hole()
    releasing = ann.start(line.grant.release)
    assert waiting.result(5).held
    with pytest.raises(StoreError):
        releasing.result(5)
    proxy.restore()
    assert let_go(carol, waiting.result()) is True
    assert ann.do(line.grant.release) is True
    assert world.nothing_left()


def test_an_evicted_successor_stands_in_line_again(world: ContractWorld, locks: Any) -> None:
    ann, bob, carol = world.actors(3)
    line = Line(locks, world.name, ann)
    to_bob = line.waits(bob)
    to_carol = line.waits(carol)
    (evicted, stays) = (view.id for view in world.waiters())
    assert world.eye.evict(world.name, evicted) == 1
    eventually(lambda: [view.id for view in world.waiters()][:1] == [stays] and len(world.waiters()) == 2)
    assert ann.do(line.grant.release) is True
    third = to_carol.result(5)
    assert carol.do(third.release) is True
    second = to_bob.result(5)
    assert line.grant.fence < third.fence < second.fence
    assert bob.do(second.release) is True
    assert world.nothing_left()


def test_nobody_overtakes_another_process(world: ContractWorld, remote: Callable[[], Remote], locks: Any) -> None:
    lock = locks.lock(world.name)
    ann, bob, carol = world.actors(3)
    other = remote()
    grant = ann.do(lock.acquire)
    to_bob = world.in_line(bob.start, lock.acquire)
    other.start(f"grant = locks.lock({world.name!r}).acquire(); result = grant.fence")
    world.until_waiting(2)
    to_carol = world.in_line(carol.start, lock.acquire)
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
