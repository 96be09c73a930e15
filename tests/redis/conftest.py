"""Private servers of Redis and Valkey, and worlds of threads and of tasks on them."""

from collections.abc import Callable, Iterator

import pytest

from interlock.testing.contract.fixtures import ann, bob, eve, locks, world, world_of_tasks, world_of_threads
from interlock.testing.other_process import Remote
from interlock.testing.store_fixture import KINDS, LockKind, StoreFixture
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.servers import Proxy, RedisCluster, RedisServer, serving
from tests.support.concurrent_callers import processes_at
from tests.support.redis_helpers import SERVERS, place_of, servers_with

__all__ = ["ann", "bob", "eve", "locks", "world", "world_of_tasks", "world_of_threads"]


@pytest.fixture(
    params=[kind for kind in KINDS if kind.name in ("exclusive", "reader", "semaphore")], ids=lambda k: k.name
)
def kind(request: pytest.FixtureRequest) -> LockKind:
    """One representative of each sort of lock; the contract's suite tests all kinds on every store."""
    found: LockKind = request.param
    return found


@pytest.fixture(params=servers_with())
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A private server of each kind, without persistence; `servers_with` gives it other settings, indirectly."""
    kind, how = request.param
    yield from serving(kind, lambda: RedisServer(kind, **how))


@pytest.fixture
def place(request: pytest.FixtureRequest, server: RedisServer) -> StoreFixture:
    """The whole server; a proxy of the test is closed after the connections through it."""
    if "proxy" in request.fixturenames:
        request.getfixturevalue("proxy")
    return place_of(server.url)


@pytest.fixture(scope="module", params=SERVERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """A Cluster of three nodes, which each test leaves as it was."""
    yield from serving(request.param, lambda: RedisCluster(3, request.param))


@pytest.fixture
def replica(server: RedisServer) -> Iterator[RedisServer]:
    """A replica of the server, up to date."""
    server.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    replica_of = {"replicaof": f"{server.host} {server.port}"}
    with RedisServer(server.kind, config=replica_of) as replica:
        eventually(lambda: replica.info("replication")["master_link_status"] == "up")
        yield replica


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    """A proxy in front of the server, which forwards everything until a test breaks it."""
    with Proxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
def without_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns polling off: only a notification can wake a waiter."""
    for sync_or_async in ("_sync", "_async"):
        monkeypatch.setattr(f"interlock.storekit.{sync_or_async}.server_queue.POLL_INTERVAL", WAIT_LIMIT * 3)


@pytest.fixture
def remote(server: RedisServer) -> Iterator[Callable[[], Remote]]:
    """Starts other processes that are connected to the server, and ends them with the test."""
    yield from processes_at(server.url)
