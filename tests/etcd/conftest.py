"""Private servers of etcd for these tests."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.store_fixture import TASKS, THREADS
from tests.servers import EtcdCluster, EtcdServer, serving


@pytest.fixture(scope="session")
def server() -> Iterator[EtcdServer]:
    """A server that all tests share, and that no test breaks."""
    yield from serving("etcd", EtcdServer)


@pytest.fixture
def url(server: EtcdServer) -> str:
    """The URL of an empty place on it."""
    return f"{server.url}/{uuid4().hex}"


@pytest.fixture
def own() -> Iterator[EtcdServer]:
    """A server that the test may break."""
    yield from serving("etcd", EtcdServer)


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    """A cluster of three members that the test may break."""
    yield from serving("etcd", EtcdCluster)


@pytest.fixture(params=[THREADS, TASKS])
def sync_or_async(request: pytest.FixtureRequest) -> str:
    """Threads, and tasks."""
    return str(request.param)
