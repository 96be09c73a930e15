"""What interlock's own connections owe their users, as a client library does: the network forgets, signals come."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest

import interlock
from interlock.locks.sync import watchdog
from interlock.stores.redis import asubscription as aears
from interlock.stores.redis import subscription as subscriptions
from interlock.testing.waiting import WAIT_LIMIT, eventually, moment, since, throughout
from interlock.testing.world import THREADS, Place, World
from tests.servers import Proxy, RedisServer
from tests.support.redis_worlds import client_ids, connect_to, in_colour, key_of, one_after_another, place_of

POOLED = 8


@pytest.fixture
def place(server: RedisServer, proxy: Proxy) -> Place:
    """The server; the proxy before it lives longer than what is connected through it."""
    return place_of(server.url)


def pooled(world: World, proxy: Proxy, options: str = "?socket_timeout=0.5") -> Any:
    """Return a connection through the proxy, that has used several sockets at once."""
    locks = connect_to(world, proxy.url + options)
    actors = world.actors(POOLED)
    proxy.delay(0.05)
    grants = [each.start(locks.lock(world.fresh_name()).acquire) for each in actors]
    for each, future in zip(actors, grants, strict=True):
        each.start(future.result(WAIT_LIMIT).release)
    for each in actors:
        each.do(in_colour(world, lambda: None, lambda: asyncio.sleep(0)))
    proxy.delay(0)
    return locks


def files() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def ended_loops() -> int:
    """Return how many event loops there are that were closed."""
    gc.collect()
    return len([each for each in gc.get_objects() if isinstance(each, asyncio.BaseEventLoop) and each.is_closed()])


# -- connections that somebody on the way has forgotten -------------------------------------------------


def test_a_holder_keeps_its_lease_though_all_its_connections_are_forgotten(world: World, proxy: Proxy) -> None:
    locks = pooled(world, proxy)
    (ann,) = world.actors(1)
    grant = ann.do(locks.lock(world.name, ttl=3).acquire)
    proxy.forget()
    throughout(4.5, lambda: grant.held)
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_a_lock_is_obtained_and_released_though_all_connections_are_forgotten(world: World, proxy: Proxy) -> None:
    locks = pooled(world, proxy)
    (ann,) = world.actors(1)
    proxy.forget()
    started = moment()
    grant = ann.do(locks.lock(world.name).acquire, timeout=3)
    assert grant is not None
    proxy.forget()
    assert ann.do(grant.release) is True
    assert since(started) < 4 * 0.5 + 1
    assert world.nothing_left()


def test_a_subscription_that_is_forgotten_is_made_anew_while_somebody_waits(
    world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.stores.redis.queue.LOOK_AGAIN", WAIT_LIMIT * 3)  # it must be told
    locks = connect_to(world, proxy.url + "?socket_timeout=0.5")
    ann, bob = world.actors(2)
    first = ann.do(world.connect().lock(world.name).acquire)
    waiting = bob.start(locks.lock(world.name).acquire)
    world.until_waiting(1)
    proxy.forget()
    known = proxy.sent.count(b"SUBSCRIBE")
    eventually(lambda: proxy.sent.count(b"SUBSCRIBE") >= known + 2)  # asked in vain, then on a new connection
    eventually(lambda: locks.store._subscription._heard_at if world.colour == "threads" else True)
    throughout(0.3, lambda: not waiting.done())
    assert ann.do(first.release) is True
    assert waiting.result(WAIT_LIMIT) is not None


def test_a_newcomer_that_subscribes_again_wakes_those_who_waited_before(
    world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.stores.redis.queue.LOOK_AGAIN", WAIT_LIMIT * 3)
    monkeypatch.setattr(subscriptions, "RETRY", 60.0)
    monkeypatch.setattr(aears, "RETRY", 60.0)
    locks = connect_to(world, proxy.url)
    ann, bob, carol = world.actors(3)
    told: list[str] = []
    locks.subscribe(lambda event: told.append(event.kind))
    first = ann.do(world.connect().lock(world.name).acquire)
    waiting = bob.start(locks.lock(world.name).acquire)
    eventually(lambda: "queued" in told)  # and has his answer: without it he would ask, and not hear
    proxy.refuse()
    eventually(lambda: not carol.do(lambda: _is_live(world, locks)))
    assert ann.do(first.release) is True  # bob is promoted, and nobody tells it
    held = ann.do(world.connect().lock("other").acquire)
    proxy.restore()
    carol.start(locks.lock("other").acquire, timeout=3)
    assert waiting.result(WAIT_LIMIT) is not None
    assert ann.do(held.release) is True


def _is_live(world: World, locks: Any) -> Any:
    live = (
        locks.store._subscription.live
        if world.colour == "threads"
        else bool(locks.store._subscription._connections._open_connections)
    )
    return in_colour(world, lambda: live, lambda: asyncio.sleep(0, live))()


# -- requests that come late ----------------------------------------------------------------------------


def test_a_claim_that_arrives_after_its_grant_was_released_leaves_no_orphan(world: World, proxy: Proxy) -> None:
    locks = pooled(world, proxy)
    (ann,) = world.actors(1)
    proxy.hold()
    grant = ann.do(locks.lock(world.name).acquire, timeout=3)
    assert grant is not None
    assert ann.do(grant.release) is True
    assert world.nothing_left()
    proxy.pass_on()
    throughout(1.0, world.nothing_left)


def test_a_release_that_a_late_request_was_told_first_is_a_release(
    world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = pooled(world, proxy, "?socket_timeout=0.3")
    (ann,) = world.actors(1)
    proxy.black_hole(passes_requests=True)
    entering = ann.start(locks.lock(world.name).acquire, timeout=10)
    eventually(lambda: locks.store._pool.has_late)
    proxy.restore()
    grant = entering.result(12)
    pool = locks.store._pool
    leave_late = type(pool).leave_late

    def first(*words: object) -> bool:
        told: bool = leave_late(pool, *words)
        eventually(lambda: not world.holders())
        return told

    monkeypatch.setattr(pool, "leave_late", first)
    assert ann.do(grant.release) is True
    assert not grant.lost


def test_releases_without_an_answer_keep_no_connections(world: World, proxy: Proxy) -> None:
    locks = pooled(world, proxy, "?socket_timeout=0.4")
    (ann,) = world.actors(1)
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(4)]
    proxy.black_hole()
    for grant in grants:
        with pytest.raises(interlock.StoreError):
            ann.do(grant.release)
    proxy.restore()
    eventually(lambda: not locks.store._pool.has_late)
    again = ann.do(locks.lock(world.name).acquire)
    assert ann.do(again.release) is True
    if world.colour == "threads":
        assert len(locks.store._pool._idle) <= 2
    else:
        assert len(locks.store._pool._connections._open_connections) == 1


def test_a_try_that_arrives_after_it_was_refused_leaves_no_orphan(world: World, proxy: Proxy) -> None:
    locks = pooled(world, proxy, "?socket_timeout=0.3")
    ann, bob = world.actors(2)
    held = bob.do(world.connect().lock(world.name).acquire)
    proxy.hold()
    assert ann.do(locks.lock(world.name).acquire, timeout=0) is None
    assert not locks.store._pool.has_late
    assert bob.do(held.release) is True
    proxy.pass_on()
    throughout(1.0, world.nothing_left)


def test_waiters_whose_subscription_does_not_come_about_give_up_in_time_together(world: World, proxy: Proxy) -> None:
    locks = pooled(world, proxy)
    holder, *actors = world.actors(7)
    held = holder.do(world.connect().lock(world.name).acquire)
    proxy.forget_new()
    started = moment()
    waiting = [each.start(locks.lock(world.name).acquire, timeout=0.5) for each in actors]
    for each in waiting:
        with suppress(interlock.StoreError):
            assert each.result(WAIT_LIMIT) is None
    assert since(started) < 0.5 + 4 * 0.5 + 1.5, "not one after the other: that takes seven seconds"
    proxy.restore()
    assert holder.do(held.release) is True


def test_a_waiter_at_a_server_that_falls_silent_gives_up_within_one_more_time_out(world: World, proxy: Proxy) -> None:
    locks = pooled(world, proxy, "?socket_timeout=1.5")
    holder, ann = world.actors(2)
    held = holder.do(world.connect().lock(world.name).acquire)
    waiting = ann.start(locks.lock(world.name).acquire, timeout=1)
    world.until_waiting(1)
    started = moment()
    proxy.black_hole()
    with suppress(interlock.StoreError):
        assert waiting.result(WAIT_LIMIT) is None
    assert since(started) < 1 + 1.5 + 1.0
    proxy.restore()
    assert holder.do(held.release) is True


# -- closing --------------------------------------------------------------------------------------------


def test_who_is_still_connecting_when_it_is_closed_gets_a_store_error_and_leaves_nothing(
    world: World, proxy: Proxy
) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=8")
    ann, bob = world.actors(2)
    proxy.delay(2.0)  # the machine may stand still for a second of them
    waiting = ann.start(locks.lock(world.name).acquire)
    eventually(lambda: proxy.requests >= 1)
    bob.do(locks.close)
    with pytest.raises(interlock.StoreError, match="closed"):
        waiting.result(WAIT_LIMIT)
    proxy.delay(0)
    throughout(0.5, world.nothing_left)


def test_who_just_begins_to_release_while_it_is_closed_leaves_nothing(world: World) -> None:
    """The watchdog has forgotten the claim, so nobody else releases it; then the store is not closed before that."""
    locks = world.connect()
    ann, bob = world.actors(2)
    grant = ann.do(locks.lock(world.name).acquire)
    session, releases, goes_on = locks._session, threading.Event(), threading.Event()
    if world.colour == THREADS:
        leave_now = session.leave_now

        def leave(claim: Any) -> Any:
            releases.set()
            goes_on.wait(0.5)
            return leave_now(claim)

        session.leave_now = leave
    else:
        aleave_now = session.aleave_now

        async def aleave(claim: Any) -> Any:
            releases.set()
            await asyncio.to_thread(goes_on.wait, 0.5)
            answer = aleave_now(claim)
            return answer if type(answer) is bool else await answer

        session.aleave_now = aleave
    close = session.store.close
    session.store.close = lambda: (close(), goes_on.set())
    releasing = ann.start(grant.release)
    eventually(releases.is_set)
    bob.do(locks.close)
    assert releasing.result(WAIT_LIMIT) is True
    assert world.nothing_left()


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_a_child_is_not_held_up_by_what_another_thread_did_at_the_fork(server: RedisServer) -> None:
    with interlock.connect(server.url) as locks:
        readers: Any = locks.store._subscription.readers  # type: ignore[attr-defined]
        taken, over = threading.Event(), threading.Event()

        def in_the_middle() -> None:
            with readers._waking:
                taken.set()
                over.wait(WAIT_LIMIT)

        thread = threading.Thread(target=in_the_middle)
        thread.start()
        assert taken.wait(WAIT_LIMIT)
        pid = os.fork()
        if pid == 0:
            os._exit(0)  # `after_in_child` has come to its end
        eventually(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)
        over.set()
        thread.join()


def test_nothing_is_subscribed_after_the_end(server: RedisServer) -> None:
    locks = interlock.connect(server.url)
    subscription: Any = locks.store._subscription  # type: ignore[attr-defined]
    locks.close()
    with pytest.raises(interlock.StoreError, match="closed"):
        subscription.ask(None)
    assert not subscription.live


# -- signals --------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys, time
import interlock

locks = interlock.connect(sys.argv[1] + "?socket_timeout=1")
lock = locks.lock("x")
assert lock.acquire() is not None
lock.release()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
print("ready", flush=True)
sys.stdin.readline()
started = time.monotonic()
try:
    got = lock.acquire(timeout=1)
except interlock.StoreError:
    got = None
assert got is None
print(time.monotonic() - started, flush=True)
"""


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_signals_do_not_stretch_the_deadline_of_a_call(proxy: Proxy) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, proxy.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        proxy.black_hole()
        child.stdin.write("\n")
        child.stdin.flush()
        took = float(child.stdout.readline() or "inf")
        assert took < 1 + 1 + 1.5, "its time-out, one for I/O, and a busy machine"
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


# -- a server that forgets ------------------------------------------------------------------------------


def test_a_promise_of_a_server_that_forgot_it_is_void_at_once(world: World, server: RedisServer) -> None:
    locks = world.connect()
    ann, bob, carol, dave = world.actors(4)
    lost: list[Any] = []
    first = ann.do(locks.lock(world.name).acquire)
    to_bob = bob.start(locks.lock(world.name, on_lost=lost.append).acquire)
    world.until_waiting(1)
    to_dave = dave.start(locks.lock(world.name).acquire)
    world.until_waiting(2)
    eventually(lambda: len(locks.store._registry._handoff.after) == 2)
    server.command("FLUSHALL")
    newcomer = carol.do(world.connect().lock(world.name).acquire)
    assert newcomer is not None
    assert ann.do(first.release) is False  # the server no longer had it
    second = to_bob.result(5)
    eventually(lambda: second.lost, within=2)
    eventually(lambda: lost == [second], within=2)
    eventually(lambda: [view.id for view in world.holders()] == [newcomer.id] and len(world.waiters()) == 1)
    assert bob.do(second.release) is False
    assert not to_dave.done()
    assert carol.do(newcomer.release) is True
    third = to_dave.result(5)
    assert third.fence > newcomer.fence
    assert dave.do(third.release) is True
    assert world.nothing_left()


def test_a_promise_is_asked_for_too_when_the_release_failed(world: World, proxy: Proxy, server: RedisServer) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=0.3")
    ann, bob, carol = world.actors(3)
    first = ann.do(locks.lock(world.name).acquire)
    to_bob = bob.start(locks.lock(world.name, ttl=6).acquire)
    world.until_waiting(1)
    eventually(lambda: len(locks.store._registry._handoff.after) == 1)
    proxy.refuse()
    with pytest.raises(interlock.StoreError):
        ann.do(first.release)
    second = to_bob.result(5)
    server.command("FLUSHALL")
    newcomer = carol.do(world.connect().lock(world.name).acquire)
    proxy.restore()
    eventually(lambda: second.lost, within=1.5)  # at the next look it would be two seconds
    assert carol.do(newcomer.release) is True
    bob.do(second.release)
    ann.do(first.release)


def test_a_foreign_value_over_one_key_does_not_lose_the_other_leases(world: World, server: RedisServer) -> None:
    locks = world.connect()
    (ann,) = world.actors(1)
    kept = ann.do(locks.lock(world.fresh_name(), ttl=1.5).acquire)
    spoilt = ann.do(locks.lock(world.name, ttl=1.5).acquire)
    server.command("SET", key_of(world.name), "something else")
    eventually(lambda: spoilt.lost)
    throughout(2.0, lambda: kept.held)
    assert ann.do(kept.release) is True
    server.command("DEL", key_of(world.name))


# -- event loops and connections that end ---------------------------------------------------------------


async def _hand_over_once(locks: Any) -> None:
    lock = locks.lock("page")
    grant = await lock.acquire()
    waiting = asyncio.ensure_future(lock.acquire())
    await asyncio.sleep(0.05)
    await grant.release()
    await (await waiting).release()


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_loops_that_end_one_after_the_other_leave_nothing_open(server: RedisServer) -> None:
    known = ended_loops()
    locks = interlock.aconnect(server.url)
    asyncio.run(_hand_over_once(locks))
    before = files()
    for _ in range(5):
        asyncio.run(_hand_over_once(locks))
    assert files() <= before
    with server.wire() as wire:
        eventually(lambda: len(client_ids(wire, "normal")) + len(client_ids(wire, "pubsub")) <= 2)
    asyncio.run(locks.close())
    assert ended_loops() <= known + 1, "the task that closed it knows its loop"


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_a_connection_that_is_dropped_without_close_leaves_no_thread_and_no_socket(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> None:
        locks = interlock.connect(server.url, ttl=1)
        with locks.lock("page"):
            pass

    monkeypatch.setattr(watchdog, "IDLE", 0.2)
    use()
    with server.wire() as wire:
        eventually(lambda: gc.collect() >= 0 and not client_ids(wire, "normal"))
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("interlock")])


def test_of_many_that_wait_when_the_line_is_cut_each_comes_to_hold_it(world: World, proxy: Proxy) -> None:
    locks = connect_to(world, proxy.url)
    holder, *actors = world.actors(6)
    first = holder.do(world.connect().lock(world.name).acquire)
    waiting = [each.start(locks.lock(world.name).acquire) for each in actors]
    world.until_waiting(5)
    proxy.cut()
    assert holder.do(first.release) is True
    assert len(one_after_another(actors, waiting)) == 5
    assert world.nothing_left()
