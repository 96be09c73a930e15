"""Replies are cut off, delayed or swallowed on their way; requests too."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from interlock.core.errors import LockError, LockLost, StoreError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import THREADS, ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, WAIT_LIMIT, eventually, lasting, throughout
from tests.servers import Proxy
from tests.support.redis_helpers import connect_to

IO_TIMEOUT = 2.0  # seconds; the store's default
SLACK = 1.0  # seconds for a busy machine


def warm(world: ContractWorld, proxy: Proxy, options: str = "", **how: Any) -> Any:
    """Return a connection through the proxy that has loaded its scripts and finished its set-up."""
    locks = connect_to(world, proxy.url + options, **how)
    ann = world.actor()
    ann.do(ann.do(locks.lock(world.fresh_name()).acquire).release)
    return locks


# -- cut off --------------------------------------------------------------------------------------------


def test_an_acquire_whose_reply_was_cut_leaves_no_orphan(
    world: ContractWorld, proxy: Proxy, kind: LockKind, ann: Actor
) -> None:
    lock = kind.make(warm(world, proxy), world.name)
    proxy.drop_next_reply()
    grant = ann.do(lock.acquire)
    assert proxy.cuts == 1
    assert [(view.id, view.fence) for view in world.eye.claims(world.name)] == [(grant.id, grant.fence)]
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_a_release_whose_reply_was_cut_is_true_and_done_once(
    world: ContractWorld, proxy: Proxy, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    locks = warm(world, proxy)
    lost: list[Any] = []
    grant = ann.do(kind.make(locks, world.name, on_lost=lost.append).acquire)
    waiting = world.in_line(bob.start, kind.rival(world.connect(), world.name).acquire)
    proxy.drop_next_reply()
    assert ann.do(grant.release) is True
    assert proxy.cuts == 1
    later = waiting.result(5)
    assert ann.do(grant.release) is False
    assert [view.id for view in world.eye.claims(world.name)] == [later.id]
    assert bob.do(later.release) is True
    assert lost == []


def test_a_renewal_whose_reply_was_cut_is_asked_again(world: ContractWorld, proxy: Proxy, ann: Actor) -> None:
    locks = warm(world, proxy)
    lost: list[Any] = []
    grant = ann.do(locks.lock(world.name, ttl=1.5, on_lost=lost.append).acquire)
    proxy.drop_next_reply()
    eventually(lambda: proxy.cuts == 1)
    throughout(1.5, lambda: not grant.lost)
    assert lost == []
    assert ann.do(grant.release) is True


def test_a_waiter_whose_replies_were_cut_gets_the_lock(
    world: ContractWorld, proxy: Proxy, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    locks = warm(world, proxy)
    grant = ann.do(kind.rival(world.connect(), world.name).acquire)
    proxy.cut_after_request(b"", times=2)
    waiting = bob.start(kind.make(locks, world.name).acquire)
    eventually(lambda: proxy.cuts == 2)
    world.until_waiting(1)
    assert ann.do(grant.release) is True
    later = waiting.result(5)
    assert [view.id for view in world.eye.claims(world.name)] == [later.id]
    assert bob.do(later.release) is True


def test_repeated_cuts_lose_no_claim_and_keep_exclusion(world: ContractWorld, proxy: Proxy) -> None:
    actors = world.actors(4)
    locks = warm(world, proxy)
    inside: list[int] = []

    def section(grant: Any) -> None:
        assert not inside
        inside.append(grant.fence)
        proxy.cut()
        inside.clear()
        fences.append(grant.fence)

    fences: list[int] = []
    for _ in range(5):
        ends = [actor.start_within(locks.lock(world.name), section) for actor in actors]
        for end in ends:
            end.result(20)
    assert fences == sorted(set(fences))
    assert len(fences) == 20
    assert world.nothing_left()


# -- delayed --------------------------------------------------------------------------------------------


def test_replies_slower_than_the_time_out_fail_without_a_claim(
    world: ContractWorld, proxy: Proxy, ann: Actor
) -> None:
    locks = warm(world, proxy, "?socket_timeout=0.2")
    lock = locks.lock(world.name, ttl=1, timeout=1)
    proxy.delay(0.5)
    with pytest.raises(LockError):
        ann.within(lock, lambda grant: None)
    proxy.restore()
    eventually(lambda: world.nothing_left(), within=3)
    assert ann.do(ann.do(world.connect().lock(world.name).acquire).release) is True


# -- swallowed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "passes_requests"),
    [("?socket_timeout=0.5", False), ("?socket_timeout=0.5", True), ("", False)],
    ids=["half a second", "half a second, replies only", "by default"],
)
def test_an_acquire_at_a_black_hole_ends_in_time(
    world: ContractWorld, proxy: Proxy, options: str, passes_requests: bool, ann: Actor
) -> None:
    lock = warm(world, proxy, options).lock(world.name, ttl=1, timeout=1.0)
    proxy.black_hole(passes_requests)
    with lasting(0.0, 1 + (0.5 if options else IO_TIMEOUT) + SLACK), pytest.raises(LockError):
        ann.within(lock, lambda grant: None)
    proxy.restore()
    eventually(lambda: world.nothing_left(), within=3)


def test_a_waiter_at_a_black_hole_ends_in_time(world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor) -> None:
    locks = warm(world, proxy, "?socket_timeout=0.5")
    ann.do(world.connect().lock(world.name).acquire)
    with lasting(0.0, 2 * RENEWED + 0.5 + SLACK):
        waiting = world.in_line(bob.start, locks.lock(world.name, ttl=1).acquire, timeout=2 * RENEWED)
        proxy.black_hole()
        with suppress(StoreError):
            assert waiting.result(WAIT_LIMIT) is None
    proxy.restore()
    eventually(lambda: not world.waiters(), within=3)


def test_a_holder_at_a_black_hole_loses_by_its_own_clock(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = warm(world, proxy, "?socket_timeout=0.5")
    lost: list[Any] = []
    grant = ann.do(locks.lock(world.name, ttl=1, on_lost=lost.append).acquire)
    waiting = world.in_line(bob.start, world.connect().lock(world.name).acquire)
    proxy.black_hole()
    later = waiting.result(5)
    assert grant.lost, "the holder's lease ends before the store's"
    eventually(lambda: lost == [grant])
    with pytest.raises(LockLost):
        grant.check()
    assert later.fence > grant.fence


def test_a_release_at_a_black_hole_fails_and_can_be_repeated(
    world: ContractWorld, proxy: Proxy, kind: LockKind, ann: Actor
) -> None:
    locks = warm(world, proxy, "?socket_timeout=0.3")
    grant = ann.do(kind.make(locks, world.name).acquire)
    proxy.black_hole()
    with pytest.raises(StoreError):
        ann.do(grant.release)
    proxy.restore()
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_a_swallowed_notification_is_found_by_a_later_look(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = warm(world, proxy)
    grant = ann.do(world.connect().lock(world.name).acquire)
    # Three times as long as a reply is waited for: a look may be swallowed too, and its lease counts from then.
    waiting = world.in_line(bob.start, locks.lock(world.name, ttl=6).acquire)
    proxy.black_hole(passes_requests=True)
    assert ann.do(grant.release) is True
    eventually(lambda: world.holders())  # the server has notified bob, who did not receive it
    proxy.restore()
    assert bob.do(waiting.result(12).release) is True
    assert world.nothing_left()


def test_stale_claims_delay_no_other_acquire_and_no_close(world: ContractWorld, proxy: Proxy, ann: Actor) -> None:
    """They are taken out in the background, one after the other."""
    stale, delay = 12, 0.3
    locks = warm(world, proxy, "?socket_timeout=1")
    proxy.black_hole()
    waiting = [actor.start(locks.lock(world.fresh_name()).acquire, timeout=0.1) for actor in world.actors(stale)]
    for each in waiting:
        with pytest.raises(StoreError):
            each.result(WAIT_LIMIT)
    proxy.restore()
    proxy.delay(delay)  # a reply takes as long as it may
    with lasting(0.0, stale * delay - SLACK):
        assert ann.do(ann.do(locks.lock(world.name).acquire).release) is True
    proxy.black_hole()
    with lasting(0.0, 2 * 1.0 + SLACK):
        ann.do(locks.close)


def test_what_takes_out_stale_claims_ends_with_the_connection(world: ContractWorld, proxy: Proxy, ann: Actor) -> None:
    locks = warm(world, proxy, "?socket_timeout=0.5")
    proxy.black_hole()
    with pytest.raises(StoreError):
        ann.do(locks.lock(world.name).acquire, timeout=0.1)
    eventually(lambda: at_work(world, ann))
    ann.do(locks.close)
    eventually(lambda: not at_work(world, ann), within=2 * 0.5 + SLACK)


def at_work(world: ContractWorld, actor: Actor) -> bool:
    """Say whether a thread or a task takes out stale claims."""
    if world.sync_or_async == THREADS:
        return any(each.name == "interlock-take-out" for each in threading.enumerate())
    return bool(actor.do(lambda: any(each.get_name() == "interlock-take-out" for each in asyncio.all_tasks())))
