"""The pool never opens more connections than its limit, and soon closes idle ones."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.storekit._sync.pool import MAX_CONNECTIONS
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_threads
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, WAIT_LIMIT, eventually, lasting, throughout
from tests.servers import Proxy, RedisServer, Wire
from tests.support.redis_helpers import client_ids, connect_to, one_after_another, servers_with

THREADS, SLOW = 200, 0.02  # seconds that each reply takes
ROOM = 20


def number_of_connections(wire: Wire) -> int:
    return len(client_ids(wire, "normal"))


@pytest.fixture
def wire(server: RedisServer) -> Iterator[Wire]:
    """A connection that lists the others."""
    with server.wire() as found:
        yield found


def use_by_many(locks: interlock.Locks, wire: Wire, threads: int = THREADS) -> int:
    """Let so many threads lock at once, each its own name; return the highest number of connections."""
    together = threading.Barrier(threads)

    def use(number: int) -> bool:
        together.wait(WAIT_LIMIT)
        grant = locks.lock(f"page:{number}").acquire(timeout=WAIT_LIMIT)
        return grant is not None and grant.release()

    with ThreadPoolExecutor(threads) as workers:
        done = [workers.submit(use, number) for number in range(threads)]
        most = 0
        while not all(each.done() for each in done):
            most = max(most, number_of_connections(wire))
        assert all(each.result() for each in done)
    return most


@pytest.mark.parametrize("most", [MAX_CONNECTIONS, 5])
def test_two_hundred_threads_share_a_few_connections(proxy: Proxy, wire: Wire, most: int) -> None:
    url = f"redis://{proxy.host}:{proxy.port}/" + (f"?max_connections={most}" if most != MAX_CONNECTIONS else "")
    with interlock.connect(url) as locks:
        proxy.delay(SLOW)
        assert use_by_many(locks, wire, THREADS if most == MAX_CONNECTIONS else 40) == most


def test_a_process_that_holds_nothing_for_a_while_keeps_one(
    server: RedisServer, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.runtime._threads.ALARM_IDLE_LIMIT", 0.5)
    with interlock.connect(server.url, ttl=1) as locks:  # its watchdog looks three times in a ttl
        use_by_many(locks, wire, MAX_CONNECTIONS)
        eventually(lambda: number_of_connections(wire) == 1)
        with locks.lock("page"):
            pass


def test_many_get_through_with_two_connections(world: ContractWorld, server: RedisServer, wire: Wire) -> None:
    locks = connect_to(world, server.url + "?max_connections=2")
    kept = world.actor().do(locks.lock("kept", ttl=RENEWED).acquire)
    actors = world.actors(20)
    waiting = [each.start(locks.lock(world.name).acquire) for each in actors]
    assert len(one_after_another(actors, waiting)) == 20
    assert number_of_connections(wire) <= 2
    assert not kept.lost


@of_threads
def test_a_lease_is_renewed_over_a_contended_only_connection(
    world: ContractWorld, server: RedisServer, proxy: Proxy
) -> None:
    with interlock.connect(f"redis://{proxy.host}:{proxy.port}/?max_connections=1") as locks:
        kept = locks.lock("kept", ttl=2 * RENEWED).acquire()
        proxy.delay(SLOW)
        stop = threading.Event()

        def hammer(number: int) -> None:
            lock = locks.lock(f"page:{number}")
            while not stop.is_set():
                with lock:
                    pass

        actors = world.actors(30)
        working = [each.start(hammer, number) for number, each in enumerate(actors)]
        try:
            throughout(4.5, lambda: kept is not None and not kept.lost)
        finally:
            stop.set()
        for each in working:
            each.result(WAIT_LIMIT)


# -- a server with too many connections ---------------------------------------------------------------------

FULL = pytest.mark.parametrize("server", servers_with(config={"maxclients": str(ROOM)}), indirect=True)


@FULL
def test_at_the_limit_of_the_server_all_get_through(server: RedisServer, wire: Wire) -> None:
    before = rejected(wire)
    with contextlib.ExitStack() as stack:
        for _ in range(ROOM - 4):  # else threads that have the processor one after the other need no more
            stack.enter_context(server.wire()).ask("PING")
        locks = stack.enter_context(interlock.connect(f"{server.url}?max_connections=100"))
        workers = stack.enter_context(ThreadPoolExecutor(60))
        together = threading.Barrier(60)

        def use(number: int) -> bool:
            together.wait(WAIT_LIMIT)
            for _ in range(5):
                grant = locks.lock(f"page:{number}").acquire(timeout=WAIT_LIMIT)
                if grant is None or not grant.release():
                    return False
            return True

        assert all(workers.map(use, range(60)))
    assert rejected(wire) > before


def rejected(wire: Wire) -> int:
    return int(str(wire.ask("INFO", "stats")).partition("rejected_connections:")[2].split()[0])


@FULL
def test_an_acquire_waits_for_a_connection_within_its_timeout(
    world: ContractWorld, server: RedisServer, wire: Wire, ann: Actor, bob: Actor
) -> None:
    locks = connect_to(world, server.url + "?socket_timeout=0.3")
    with contextlib.ExitStack() as others:
        for _ in range(ROOM - 1):
            others.enter_context(server.wire()).ask("PING")
        waiting = ann.start(locks.lock(world.name).acquire, timeout=WAIT_LIMIT)
        with lasting(0.0, 5.0), contextlib.suppress(StoreError):  # it reports the limit, or the time-out
            assert bob.do(locks.lock(world.name).acquire, timeout=0.5) is None
        eventually(lambda: rejected(wire) > 12)  # more than are tried while one command is under way
        assert not waiting.done()
    assert ann.do(waiting.result(WAIT_LIMIT).release) is True
