"""What all tests on PostgreSQL share: a private server, and an empty table for each test."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import interlock
from tests.servers import PostgresServer, need

Ask = Callable[..., list[Any]]
DEFAULTS = "-c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this module's own, which its tests may kill, pause and start again."""
    need("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    """How to connect to a place without locks."""
    if not server.running:
        server.start()
    return f"{server.url}?create=true&table=t{uuid4().hex}"


@pytest.fixture
def ask(server: PostgresServer) -> Iterator[Ask]:
    """Ask the server from outside."""

    def asked(words: str, *values: Any) -> list[Any]:
        with psycopg.connect(server.url, autocommit=True, options=DEFAULTS) as connection:
            cursor = connection.execute(words, values)
            return cursor.fetchall() if cursor.description else []

    return asked


@pytest.fixture
def locks(url: str) -> Iterator[Any]:
    """A connection for threads."""
    with interlock.connect(url) as locks:
        yield locks
