"""Fixtures of the tests on PostgreSQL: a private server, and an empty table for each test."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import interlock
from tests.servers import PostgresServer, serving
from tests.support.client_actors import SYNC_AND_ASYNC

Ask = Callable[..., list[Any]]
WAITING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'interlock' AND wait_event_type = 'Lock'"
DEFAULTS = (
    "-c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed "
    "-c statement_timeout=0 -c lock_timeout=0"
)


def table_of(url: str) -> str:
    """Return the table of a URL as the fixture `url` makes it."""
    return url.rpartition("=")[2]


def number_of(name: str) -> int:
    """Return the number of the advisory lock that each step on a name takes."""
    return int.from_bytes(hashlib.sha256(b"\0" + name.encode()).digest()[:8], "big", signed=True)


@pytest.fixture(params=SYNC_AND_ASYNC)
def sync_or_async(request: pytest.FixtureRequest) -> str:
    """Each colour."""
    return str(request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A private server of this module, which its tests may kill, pause and restart."""
    yield from serving("postgres", PostgresServer)


@pytest.fixture
def url(server: PostgresServer) -> str:
    """The URL of a place without locks."""
    if not server.running:
        server.start()
    return f"{server.url}?table=t{uuid4().hex}"


@pytest.fixture
def ask(server: PostgresServer) -> Ask:
    """Runs a statement on a separate connection."""

    def asked(words: str, *values: Any) -> list[Any]:
        with psycopg.connect(server.url, autocommit=True, options=DEFAULTS) as connection:
            cursor = connection.execute(words, values)
            return cursor.fetchall() if cursor.description else []

    return asked


@pytest.fixture
def stranger(server: PostgresServer) -> Iterator[Callable[[], Any]]:
    """Opens a separate connection, whose first statement begins a transaction that ends with the test."""
    with ExitStack() as connections:
        yield lambda: connections.enter_context(psycopg.connect(server.url, options=DEFAULTS))


@pytest.fixture
def locks(url: str) -> Iterator[Any]:
    """A connection for threads."""
    with interlock.connect(url) as locks:
        yield locks


@pytest.fixture
def role(ask: Ask) -> Iterator[Callable[[str], None]]:
    """Changes a setting of the role for all new sessions."""
    changed: list[str] = []

    def change(setting: str) -> None:
        changed.append(setting.partition(" ")[0])
        ask(f"ALTER ROLE postgres SET {setting}")

    yield change
    for name in changed:
        ask(f"ALTER ROLE postgres RESET {name}")
