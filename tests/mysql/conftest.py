"""Fixtures of the tests on MariaDB's table: a private server, and an empty table for each test."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pymysql  # type: ignore[import-untyped]
import pytest

import interlock
from tests.servers import MariaServer, serving

Ask = Callable[..., list[Any]]


def table_of(url: str) -> str:
    """Return the table of a URL as the fixture `url` makes it."""
    return url.rpartition("=")[2]


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    """A private server of this module, which its tests may kill, pause and restart."""
    yield from serving("mariadb", MariaServer)


@pytest.fixture
def url(server: MariaServer) -> str:
    """The URL of a place without locks."""
    server.start()
    return f"{server.url}?create=true&table=t{uuid4().hex}"


@pytest.fixture
def outside(server: MariaServer) -> Callable[[], Any]:
    """Opens a separate connection."""

    def connected() -> Any:
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, database=server.database, autocommit=True
        )

    return connected


@pytest.fixture
def ask(outside: Callable[[], Any]) -> Ask:
    """Runs a statement on a separate connection."""

    def asked(words: str, *values: Any) -> list[Any]:
        with outside() as connection, connection.cursor() as cursor:
            cursor.execute(words, values)
            return list(cursor.fetchall())

    return asked


@pytest.fixture
def locks(url: str) -> Iterator[Any]:
    """A connection for threads."""
    with interlock.connect(url) as locks:
        yield locks
