"""A server and two clients on three hosts: links that are cut, that lose one direction, that are slow."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from interlock.stores.postgresql.ddl import ddl
from interlock.testing.other_process import Remote
from tests.servers import Host, Hosts, PostgresServer, Proxy, RedisServer, need

TTL = 1.0  # seconds of lease
IO = 1.0  # seconds that one request takes at most
BUSY = 3.0  # seconds of delay by a busy machine

On = Callable[[Host], Remote]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    need("hosts")
    with Hosts() as hosts:
        yield hosts


@pytest.fixture(scope="module", params=["valkey", "postgres"])
def server(request: pytest.FixtureRequest, hosts: Hosts) -> Iterator[RedisServer | PostgresServer]:
    """A server that all three hosts reach."""
    need(request.param)
    if request.param == "valkey":
        with RedisServer("valkey", config={"bind": f"127.0.0.1 {hosts.address}", "protected-mode": "no"}) as redis:
            yield redis
        return
    with PostgresServer(config={"listen_addresses": f"127.0.0.1,{hosts.address}"}) as postgres:
        with open(postgres.folder / "data" / "pg_hba.conf", "a", encoding="utf-8") as trusted:
            trusted.write("host all all 198.18.0.0/15 trust\n")
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(ddl().encode())
            connection.execute("SELECT pg_reload_conf()")
        yield postgres


def url_of(server: RedisServer | PostgresServer, address: str, port: int) -> str:
    """Return the store's URL as other hosts have it."""
    there = server.url.replace(f"{server.host}:{server.port}", f"{address}:{port}")
    return f"{there}?timeout={IO:g}" if isinstance(server, PostgresServer) else f"{there}?socket_timeout={IO:g}"


@pytest.fixture
def on(server: RedisServer | PostgresServer, hosts: Hosts) -> Iterator[On]:
    """Starts a process on another host; all links work again after the test."""
    with ExitStack() as ending:

        def start(host: Host) -> Remote:
            ending.callback(host.heal)
            ending.callback(host.plug)
            remote = Remote(url_of(server, hosts.address, server.port), host.before)
            ending.callback(remote.close)
            return remote

        yield start


TAKE = """
import time
told = []
lock = locks.lock("book", ttl={ttl}, on_lost=lambda grant: told.append(time.monotonic()))
grant = lock.acquire(timeout={timeout})
result = grant and (time.monotonic(), grant.fence)
"""
LAST = """
while True:
    now = time.monotonic()
    if not grant.held:
        break
    last = now
    time.sleep(0.005)
while not told:
    time.sleep(0.005)
result = last, told[0]
"""
FREE = "result = grant.release()"
TRY = """
begun = time.monotonic()
try:
    assert lock.acquire(timeout=0.5) is None, "it can't have heard that it holds"
except interlock.StoreError:
    pass
result = time.monotonic() - begun
"""


def take(timeout: float = 20.0) -> str:
    """Return statements that acquire the lock and return the time and the fence."""
    return TAKE.format(ttl=TTL, timeout=timeout)


def test_a_cut_off_host_knows_its_loss_before_the_next_grant(hosts: Hosts, on: On) -> None:
    ann, bob = on(hosts.ann), on(hosts.bob)
    _, first = ann.do(take())
    bob.start(take())
    hosts.ann.pull()
    ann.start(LAST)
    since, second = bob.answer()
    assert second > first
    last, told = ann.answer()
    assert last < since, "both held it, each by its own clock"
    assert told < since + BUSY
    hosts.ann.plug()
    ann.start(take())
    assert bob.do(FREE) is True
    assert ann.answer(within=IO + BUSY)[1] > second  # without a restart


@pytest.mark.parametrize("direction", ["lose_requests", "lose_replies"])
def test_who_is_heard_but_hears_nothing_leaves_nothing_behind(direction: str, hosts: Hosts, on: On) -> None:
    ann, bob = on(hosts.ann), on(hosts.bob)
    ann.do(take())
    assert ann.do(FREE) is True  # it is connected
    getattr(hosts.ann, direction)()
    assert ann.do(TRY) < 0.5 + 2 * IO + BUSY
    assert bob.do(take())  # a claim of ann's that reached the server ends with its lease
    assert bob.do(FREE) is True
    hosts.ann.heal()
    assert ann.do(take(timeout=IO + BUSY)) is not None
    assert ann.do(FREE) is True
    assert bob.do("result = [view.name for view in locks.claims()]") == []


def test_a_waiter_with_lost_replies_gets_the_lock_once_healed(hosts: Hosts, on: On) -> None:
    ann, bob = on(hosts.ann), on(hosts.bob)
    ann.do(take())
    bob.start(take())
    ann.do("while len(locks.claims()) < 2: time.sleep(0.01)")
    hosts.bob.lose_replies()
    assert ann.do(FREE) is True
    after, _ = ann.do(take(timeout=2 * TTL + IO + BUSY))  # a hand-over to bob lasts no longer than a lease
    assert ann.do(FREE) is True
    hosts.bob.heal()
    since, _ = bob.answer(within=2 * IO + BUSY)
    assert bob.do(FREE) is True
    assert since > after


@pytest.mark.parametrize("delay", [0.001, 0.02], ids=["1 ms", "20 ms"])
def test_a_turn_is_told_over_a_long_cable_not_found_by_looking(
    delay: float, server: RedisServer | PostgresServer, hosts: Hosts
) -> None:
    with Proxy(server.host, server.port, hosts.address) as proxy, ExitStack() as ending:
        proxy.delay(delay)
        url = url_of(server, hosts.address, proxy.port)
        ann, bob = (Remote(url, host.before) for host in (hosts.ann, hosts.bob))
        ending.callback(ann.close)
        ending.callback(bob.close)
        ann.do(take())
        took = []
        for holder, waiter in ((ann, bob), (bob, ann), (ann, bob)):
            waiter.start(take())
            holder.do("while len(locks.claims()) < 2: time.sleep(0.01)")
            released, done = holder.do("result = time.monotonic(), grant.release()")
            assert done is True
            took.append(waiter.answer()[0] - released)
        assert delay < min(took) < 20 * delay + 0.25  # waiters without a notification poll every few seconds
