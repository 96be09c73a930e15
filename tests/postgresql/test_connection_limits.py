"""A server, role, database or pooler that accepts no more connections."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from interlock.core.errors import StoreError
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import WAITING, number_of
from tests.servers import PgBouncer, PostgresServer, need, serving
from tests.support.client_actors import side

WHAT_TO_DO = r"Raise its limit, or lower \?max_connections="


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server with a low limit of connections."""
    yield from serving("postgres", partial(PostgresServer, config={"max_connections": "10"}))


@pytest.fixture
def here(server: PostgresServer, stranger: Callable[[], Any]) -> Any:
    """A connection opened before the server was full."""
    connection = stranger()
    connection.autocommit = True
    connection.execute(ddl("full"))
    connection.execute('DELETE FROM "full"')
    return connection


@pytest.fixture
def fill(server: PostgresServer, stranger: Callable[[], Any]) -> Callable[[], list[Any]]:
    """Take all connections that the server has left."""

    def taken() -> list[Any]:
        others: list[Any] = []
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            while True:
                others.append(stranger())
        return others

    return taken


def refused(server: PostgresServer) -> int:
    """Return how many connections the server refused."""
    return server.log.read_text().count("too many clients")


def test_a_waiter_asks_a_full_server_until_it_gets_a_connection(
    server: PostgresServer, here: Any, fill: Callable[[], list[Any]], sync_or_async: str
) -> None:
    others = fill()
    with side(sync_or_async, f"{server.url}?table=full") as ours:
        before = refused(server)
        waiting = ours.waits("a", timeout=WAIT_LIMIT)
        eventually(lambda: refused(server) >= before + 3)
        assert not waiting.done()
        others.pop().close()
        assert ours.do(waiting.result(WAIT_LIMIT).release) is True


def test_a_waiter_in_line_gets_the_lock_at_a_full_server(
    server: PostgresServer, here: Any, fill: Callable[[], list[Any]], sync_or_async: str
) -> None:
    url = f"{server.url}?table=full"
    with side(sync_or_async, url) as ours, side(sync_or_async, url) as theirs:
        grant = ours.take("a")
        waiting = theirs.waits("a")
        eventually(lambda: len(ours.claims("a")) == 2)
        fill()
        assert ours.do(grant.release) is True
        assert theirs.do(waiting.result(WAIT_LIMIT).release) is True


def test_a_release_at_a_full_server_waits_for_its_own_process(
    server: PostgresServer, here: Any, stranger: Callable[[], Any], fill: Callable[[], list[Any]], sync_or_async: str
) -> None:
    """The only connection is in use for longer than the wait for a second one, and the server accepts no other."""
    with side(sync_or_async, f"{server.url}?table=full") as ours, ours.beside() as stuck:
        grant = ours.take("free")
        blocker = stranger()
        blocker.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("a"),))
        taking = stuck.waits("a", timeout=0)
        eventually(lambda: here.execute(WAITING).fetchall())
        fill()
        before = refused(server)
        releasing = ours.start(grant.release)
        eventually(lambda: refused(server) > before)
        blocker.rollback()
        assert releasing.result(WAIT_LIMIT) is True
        assert stuck.do(taking.result(WAIT_LIMIT).release) is True
        assert ours.claims("free") == []


def connected(url: str) -> Any:
    """Return a connection; None if the server refuses it."""
    try:
        return psycopg.connect(url)
    except psycopg.OperationalError:
        return None


@pytest.fixture(params=["server", "role", "database", "pooler"])
def full(
    request: pytest.FixtureRequest, server: PostgresServer, here: Any, fill: Callable[[], list[Any]]
) -> Iterator[str]:
    """The URL of a server, role, database or pooler that is full."""
    plain = server.url.replace("postgres@", "plain@")
    if request.param == "server":
        fill()
        yield server.url
    elif request.param == "role":
        here.execute("CREATE ROLE plain LOGIN CONNECTION LIMIT 0")
        yield plain
        here.execute("DROP ROLE plain")
    elif request.param == "database":
        here.execute("CREATE ROLE plain LOGIN")
        here.execute("CREATE DATABASE narrow CONNECTION LIMIT 0")
        yield plain.replace("/postgres", "/narrow")
        here.execute("DROP DATABASE narrow")
        here.execute("DROP ROLE plain")
    else:
        need("pgbouncer")
        with PgBouncer((server.host, server.port, server.user), config={"max_client_conn": "1"}) as pooler:
            with eventually(lambda: connected(pooler.url)):  # the readiness check may still be connected
                yield pooler.url


def test_a_try_at_a_full_server_is_an_error_with_advice(full: str, sync_or_async: str) -> None:
    with side(sync_or_async, f"{full}?table=full") as ours, pytest.raises(StoreError, match=WHAT_TO_DO):
        ours.take("a", timeout=0)
