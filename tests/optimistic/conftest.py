"""Private servers, clients of both colours, and another client that interferes."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.servers import Proxy, RedisServer, serving
from tests.support.optimistic_interfaces import Tasks, Threads
from tests.support.redis_helpers import SERVERS


@pytest.fixture(scope="session", params=SERVERS)
def shared_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server for all tests that do not harm it."""
    yield from serving(request.param, lambda: RedisServer(request.param))


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    """The same, empty."""
    shared_server.command("FLUSHALL")
    return shared_server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server for a test that stops it or changes its settings."""
    yield from serving("valkey", RedisServer)


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    """A proxy in front of the server, which forwards everything until a test breaks it."""
    with Proxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
def other(server: RedisServer) -> Iterator[Any]:
    """A plain client that stands for another program."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@pytest.fixture(params=[Threads, Tasks], ids=lambda interface: interface.name)
def interface(request: pytest.FixtureRequest) -> Iterator[Threads | Tasks]:
    """Threads and tasks."""
    interface = request.param()
    yield interface
    interface.close()


@pytest.fixture
def client(interface: Threads | Tasks, server: RedisServer) -> Any:
    """A client of the colour."""
    return interface.client(server.url)
