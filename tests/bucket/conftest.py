"""Private object storage servers for these tests."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.servers import AzuriteServer, SeaweedServer, need

SERVERS = {"seaweedfs": SeaweedServer, "azurite": AzuriteServer}


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A shared server, which tests must not break."""
    need(request.param)
    with SERVERS[request.param]() as started:
        yield started


@pytest.fixture
def url(server: Any) -> str:
    """The URL of an empty place on the server."""
    return str(server.at(uuid4().hex))
