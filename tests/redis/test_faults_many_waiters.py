"""Many waiters cost the server little, and leave no keys behind."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from interlock.api.connect import open_store
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.runtime.process import fresh_id
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import eventually, throughout
from tests.servers import Proxy, RedisServer, need
from tests.support.redis_helpers import SERVERS, client_ids, connect_to, key_of, one_after_another

WAITERS, SECONDS = 50, 5.0
FEW, MANY = 10, 4_000
GROWTH = 4.0  # at most, from 10 to 10,000 in line; log2 grows by 4, a scan of the line would by 1,000


@contextmanager
def watching(server: RedisServer) -> Iterator[Counter[str]]:
    """Count the commands that clients send to a server while the body runs, without those inside scripts."""
    commands: Counter[str] = Counter()
    end = '"end of watch"'
    with server.wire() as wire:
        assert wire.ask("MONITOR") == "OK"

        def read() -> None:
            while end not in (line := wire.read()):
                where, _, command = str(line).partition("] ")
                if not where.endswith(" lua"):
                    commands[command.split('"')[1].upper()] += 1

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield commands
        finally:
            server.command("ECHO", end.strip('"'))  # all earlier commands have been counted
            reader.join()


def is_quiet(server: RedisServer) -> bool:
    """Tell whether no command reaches the server for half a second."""
    with watching(server) as commands:
        throughout(0.5, lambda: True)
    return not commands


@pytest.mark.parametrize(
    ("server", "connections"),
    [(("valkey", {}), "of their own"), (("redis", {}), "in common")],
    indirect=["server"],
    ids=["of their own", "in common"],
)
def test_waiters_on_a_held_lock_ask_at_most_once_a_second_each(
    world: ContractWorld, server: RedisServer, connections: str
) -> None:
    holder, *waiters = world.actors(1 + WAITERS)
    shared = world.connect()
    grant = holder.do(shared.lock(world.name).acquire)
    waiting = [
        each.start((shared if connections == "in common" else world.connect()).lock(world.name).acquire)
        for each in waiters
    ]
    world.until_waiting(WAITERS)
    with watching(server) as commands:
        throughout(SECONDS, lambda: not any(future.done() for future in waiting))
    asked = sum(commands.values())
    assert asked <= WAITERS * SECONDS, commands
    assert holder.do(grant.release) is True
    assert len(one_after_another(waiters, waiting)) == len(waiters)


def test_waiters_for_a_server_that_is_down_do_not_storm_it(
    proxy: Proxy, server: RedisServer, world: ContractWorld
) -> None:
    holder, *waiters = world.actors(1 + 20)
    grant = holder.do(world.connect().lock(world.name, ttl=4).acquire)  # renewed while they connect
    waiting = [each.start(connect_to(world, proxy.url).lock(world.name).acquire) for each in waiters]
    world.until_waiting(20)
    server.kill()
    started = time.monotonic()
    before = proxy.connections
    throughout(2.0, lambda: not any(future.done() for future in waiting))
    tries, seconds = proxy.connections - before, time.monotonic() - started
    server.start()
    # The pauses of a listener grow from 0.02 to 0.5 s: its first five tries take less than a second.
    assert tries <= 20 * (5 + 5 * seconds), "more than five connections a second for each"
    assert len(one_after_another(waiters, waiting)) == 20
    assert holder.do(grant.release) is False


def test_a_hand_over_tells_one_waiter_only(world: ContractWorld, server: RedisServer) -> None:
    holder, *waiters = world.actors(1 + 10)
    lock = world.connect().lock(world.name)
    assert holder.do(holder.do(lock.acquire).release) is True  # the server has the scripts
    grant = holder.do(lock.acquire)
    waiting = [each.start(world.connect().lock(world.name).acquire) for each in waiters]
    world.until_waiting(10)
    eventually(lambda: is_quiet(server))  # a waiter that subscribed after it entered polls once
    started = time.monotonic()
    with watching(server) as commands:
        assert holder.do(grant.release) is True
        first = eventually(lambda: [future for future in waiting if future.done()])
    assert len(first) == 1
    asked = sum(commands.values())
    looks = 10 * (time.monotonic() - started)  # one a second by each remaining waiter; a storm would be ten at once
    assert asked <= 4 + looks, commands  # the release, and the renewal that a watchdog may begin with
    assert len(one_after_another(waiters, waiting)) == 10


# -- ten thousand in line ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind_of_server", SERVERS)
def test_the_cost_of_an_operation_does_not_grow_with_the_line(kind_of_server: str) -> None:
    need(kind_of_server)
    with RedisServer(kind_of_server) as server:  # type: ignore[arg-type]
        few = cost(server, "few", FEW)
        many = cost(server, "many", MANY)
        assert many < few * GROWTH, f"{few:.1f} µs with {FEW} in line, {many:.1f} µs with {MANY:,}"


def cost(server: RedisServer, name: str, waiters: int) -> float:
    """Return the server's microseconds per operation with so many waiters in line.

    The operations are the hand-over to the head, a newcomer, a heartbeat, and a waiter in the middle who gives up.
    """
    queue: Any = open_store(server.url).queue()
    with closing(queue):
        line = [_enter(queue, name) for _ in range(waiters + 1)]
        for _ in range(20):
            _move_on(queue, name, line)
        server.command("CONFIG", "RESETSTAT")
        for _ in range(100):
            _move_on(queue, name, line)
        stats = server.info("commandstats")["cmdstat_evalsha"]
        return float(stats.partition("usec_per_call=")[2].partition(",")[0])


def _enter(queue: Any, name: str) -> Claim:
    claim = Claim(fresh_id(), LockSpec(SEPARATOR + name, ttl=600.0), "one of many")
    queue.enter(claim, queue.subscribe(), True, False)
    return claim


def _move_on(queue: Any, name: str, line: list[Claim]) -> None:
    head, middle = line.pop(0), line.pop(len(line) // 2)
    assert queue.leave(head) is True
    assert queue.leave(middle) is True
    line += [_enter(queue, name), _enter(queue, name)]
    queue.enter(line[-1], queue.subscribe(), True, True)


# -- nothing left -------------------------------------------------------------------------------------------


def test_an_idle_name_keeps_one_small_key_that_ends_by_itself(
    world: ContractWorld, server: RedisServer, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    names = [world.fresh_name() for _ in range(10)]
    for name in names:
        grant = ann.do(kind.make(locks, name).acquire)
        waiting = bob.start(kind.rival(locks, name).acquire)
        world.until_waiting(1, name)
        ann.do(grant.release)
        bob.do(waiting.result(5).release)
    keys = server.command("KEYS", "*")
    assert set(keys) <= {key_of(name) for name in names}
    with server.wire() as wire:
        for key in keys:
            assert 0 < wire.ask("PTTL", key) <= 24 * 3600 * 1000
            assert wire.ask("MEMORY", "USAGE", key) < 500


def test_a_closed_connection_leaves_no_socket_or_subscription(
    world: ContractWorld, server: RedisServer, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    waiting = bob.start(locks.lock(world.name).acquire)
    eventually(lambda: len(ann.do(locks.claims, world.name)) == 2)
    ann.do(grant.release)
    bob.do(waiting.result(5).release)
    ann.do(locks.close)
    with server.wire() as wire:
        eventually(lambda: client_ids(wire, "normal") == [] and client_ids(wire, "pubsub") == [])


def test_an_abandoned_line_is_forgotten_by_the_server(world: ContractWorld, server: RedisServer) -> None:
    for number in range(3):
        world.stale_claim(LockSpec(world.key(), ttl=0.2, label=str(number)))
    assert server.command("DBSIZE") >= 1
    with server.wire() as wire:
        for key in server.command("KEYS", "*"):
            assert 0 < wire.ask("PTTL", key) <= 24 * 3600 * 1000
