"""Interlock's own connections do what a client library must: survive dropped connections and signals."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest

import interlock
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import WAIT_LIMIT, eventually, lasting, throughout
from tests.process.test_loops import hand_over_once
from tests.servers import Proxy, RedisServer
from tests.support.cli_processes import Process
from tests.support.redis_helpers import Line, client_ids, connect_to, for_interface

POOLED = 8


def pooled(world: ContractWorld, proxy: Proxy, options: str = "?socket_timeout=0.5") -> Any:
    """Return a connection through the proxy that has used several sockets at once."""
    locks = connect_to(world, proxy.url + options)
    actors = world.actors(POOLED)
    proxy.delay(0.05)
    grants = [each.start(locks.lock(world.fresh_name()).acquire) for each in actors]
    for each, future in zip(actors, grants, strict=True):
        each.start(future.result(WAIT_LIMIT).release)
    for each in actors:
        each.do(for_interface(world, lambda: None, lambda: asyncio.sleep(0)))
    proxy.delay(0)
    return locks


# -- connections that a device on the way dropped -------------------------------------------------------


def test_a_holder_keeps_its_lease_over_forgotten_connections(world: ContractWorld, proxy: Proxy, ann: Actor) -> None:
    locks = pooled(world, proxy)
    grant = ann.do(locks.lock(world.name, ttl=3).acquire)
    proxy.forget()
    throughout(4.5, lambda: grant.held)
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_a_lock_is_used_over_forgotten_connections(world: ContractWorld, proxy: Proxy, ann: Actor) -> None:
    locks = pooled(world, proxy)
    proxy.forget()
    with lasting(0.0, 4 * 0.5 + 1):
        grant = ann.do(locks.lock(world.name).acquire, timeout=3)
        proxy.forget()
        assert ann.do(grant.release) is True
    assert world.nothing_left()


@pytest.mark.usefixtures("without_polling")
def test_a_forgotten_subscription_is_renewed_during_a_wait(world: ContractWorld, proxy: Proxy) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=0.5")
    ann, bob = world.actors(2)
    first = ann.do(world.connect().lock(world.name).acquire)
    waiting = world.in_line(bob.start, locks.lock(world.name).acquire)
    proxy.forget()
    known = proxy.sent.count(b"SUBSCRIBE")
    eventually(lambda: proxy.sent.count(b"SUBSCRIBE") >= known + 2)  # asked in vain, then on a new connection
    throughout(0.3, lambda: not waiting.done())
    assert ann.do(first.release) is True
    assert waiting.result(WAIT_LIMIT) is not None


# -- requests that come late ----------------------------------------------------------------------------


def test_a_claim_that_arrives_after_its_release_leaves_no_orphan(
    world: ContractWorld, proxy: Proxy, ann: Actor
) -> None:
    locks = pooled(world, proxy)
    proxy.hold()
    grant = ann.do(locks.lock(world.name).acquire, timeout=3)
    assert ann.do(grant.release) is True
    assert world.nothing_left()
    proxy.pass_on()
    eventually(world.nothing_left)  # the claim and the request that undoes it arrive one after the other
    throughout(1.0, world.nothing_left)


def test_releases_without_an_answer_keep_no_connections(
    world: ContractWorld, proxy: Proxy, server: RedisServer, ann: Actor
) -> None:
    locks = pooled(world, proxy, "?socket_timeout=0.4")
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(4)]
    proxy.black_hole()
    for grant in grants:
        with pytest.raises(interlock.StoreError):
            ann.do(grant.release)
    proxy.restore()
    again = ann.do(locks.lock(world.name).acquire)
    assert ann.do(again.release) is True
    with server.wire() as wire:
        eventually(lambda: len(client_ids(wire, "normal")) <= 2)


def test_a_try_that_arrives_after_its_refusal_leaves_no_orphan(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = pooled(world, proxy, "?socket_timeout=0.3")
    held = bob.do(world.connect().lock(world.name).acquire)
    proxy.hold()
    assert ann.do(locks.lock(world.name).acquire, timeout=0) is None
    assert bob.do(held.release) is True
    proxy.pass_on()
    throughout(1.0, world.nothing_left)


def test_waiters_without_a_subscription_give_up_together_in_time(world: ContractWorld, proxy: Proxy) -> None:
    locks = pooled(world, proxy)
    holder, *actors = world.actors(7)
    held = holder.do(world.connect().lock(world.name).acquire)
    proxy.forget_new()
    with lasting(0.0, 0.5 + 4 * 0.5 + 1.5):  # not one after the other: that takes seven seconds
        waiting = [each.start(locks.lock(world.name).acquire, timeout=0.5) for each in actors]
        for each in waiting:
            with suppress(interlock.StoreError):
                assert each.result(WAIT_LIMIT) is None
    proxy.restore()
    assert holder.do(held.release) is True


# -- closing --------------------------------------------------------------------------------------------


def test_closing_while_connecting_is_an_error_and_leaves_nothing(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = connect_to(world, proxy.url + "?socket_timeout=16")  # replies on one connection come 2 s apart
    direct = world.connect().lock(world.fresh_name())
    assert bob.do(bob.do(direct.acquire).release) is True  # the server has the scripts
    proxy.delay(2.0)  # the machine may stand still for a second of them
    waiting = ann.start(locks.lock(world.name).acquire)
    eventually(lambda: proxy.requests >= 1)
    bob.do(locks.close)
    with pytest.raises(interlock.StoreError, match="closed"):
        waiting.result(WAIT_LIMIT)
    proxy.delay(0)
    eventually(world.nothing_left, within=15)  # half of the lease
    throughout(0.5, world.nothing_left)


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_a_failed_close_is_reported_beside_a_waiter_too(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks, other = connect_to(world, proxy.url + "?socket_timeout=1.5"), world.fresh_name()
    assert bob.do(world.connect().lock(other).acquire) is not None
    assert ann.do(locks.lock(world.name).acquire) is not None
    waiting = world.actor().start(locks.lock(other).acquire)
    eventually(lambda: len(world.eye.claims(other)) == 2)
    proxy.black_hole()
    with pytest.raises(interlock.StoreError):
        ann.do(locks.close)
    with pytest.raises(interlock.StoreError):
        waiting.result(WAIT_LIMIT)


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_a_token_whose_renewal_had_no_answer_holds_on(
    world: ContractWorld, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    locks = pooled(world, proxy, "?socket_timeout=0.3")
    token = ann.do(ann.do(locks.lock(world.name).acquire).detach)
    proxy.hold()
    with suppress(interlock.StoreError):
        ann.do(locks.renew, token)
    proxy.pass_on()
    direct = world.connect()
    throughout(1.0, lambda: len(world.eye.claims(world.name)) == 1)
    assert bob.do(bob.do(direct.attach, token).release) is True


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_a_hold_is_detached_over_forgotten_connections(world: ContractWorld, proxy: Proxy, ann: Actor) -> None:
    locks = pooled(world, proxy, "?socket_timeout=0.5")
    grant = ann.do(locks.lock(world.name).acquire)
    proxy.forget()
    token = ann.do(grant.detach)
    proxy.forget()
    assert ann.do(ann.do(locks.attach, token).release) is True


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
    with Process(
        [sys.executable, "-c", INTERRUPTED, proxy.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.read_line() == "ready"
        proxy.black_hole()
        child.say("")
        assert float(child.read_line() or "inf") < 1 + 1 + 1.5, "its time-out, one for I/O, and a busy machine"


# -- a server that loses data ---------------------------------------------------------------------------


def test_a_promise_of_a_server_that_forgot_it_is_void_at_once(
    world: ContractWorld, server: RedisServer, locks: Any
) -> None:
    ann, bob, carol, dave = world.actors(4)
    lost: list[Any] = []
    line = Line(locks, world.name, ann)
    to_bob = line.waits(bob, locks.lock(world.name, on_lost=lost.append))
    to_dave = line.waits(dave)
    server.command("FLUSHALL")
    newcomer = carol.do(world.connect().lock(world.name).acquire)
    assert ann.do(line.grant.release) is False  # the server no longer had it
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


# -- event loops and connections that end ---------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # they were not closed; an error would keep them open
@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_loops_that_end_one_after_the_other_leave_no_connections(server: RedisServer) -> None:
    locks = interlock.aconnect(server.url)
    for _ in range(5):
        asyncio.run(hand_over_once(locks))
    with server.wire() as wire:
        eventually(lambda: gc.collect() >= 0 and len(client_ids(wire, "normal") + client_ids(wire, "pubsub")) <= 2)

    async def last() -> None:
        await hand_over_once(locks)
        await locks.close()

    asyncio.run(last())
    gc.collect()  # so that no other test gets warnings about connections left open here


@pytest.mark.parametrize("server", [pytest.param(("valkey", {}), id="valkey")], indirect=True)
def test_a_dropped_connection_leaves_no_thread_and_no_socket(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> None:
        locks = interlock.connect(server.url, ttl=1)
        with locks.lock("page"):
            pass

    before = threading.enumerate()
    monkeypatch.setattr("interlock.runtime._threads.ALARM_IDLE_LIMIT", 0.2)
    use()
    with server.wire() as wire:
        eventually(lambda: gc.collect() >= 0 and not client_ids(wire, "normal"))
    eventually(lambda: set(threading.enumerate()) <= set(before))
