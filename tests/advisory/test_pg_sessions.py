"""Sessions of advisory locks on PostgreSQL: on which server, with what settings, and what may break them off."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import interlock
from interlock import StoreError
from interlock.core.errors import UnknownOutcome
from interlock.stores.advisory.places import number_of
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.servers import PgBouncer, PostgresReplica, PostgresServer, need

KEY = number_of("\0book")
LEVELS = ["read uncommitted", "read committed", "repeatable read", "serializable"]
WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for all tests of this module that leave it as it was."""
    need("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def other(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """A session of somebody else, with plain SQL."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


def url_of(server: Any) -> str:
    """The URL of advisory locks."""
    return server.url.replace(":", "+advisory:", 1)


def sessions_of(locks: Any) -> Any:
    """The open sessions of a connection."""
    return locks._session.store._room.sessions


def test_a_statement_that_the_server_does_not_take_has_a_deadline(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with interlock.connect(url_of(server)) as locks:
        locks.lock("book").acquire().release()
        (session,) = sessions_of(locks)
        long = "x" * 30_000_000
        assert session.rows("SELECT length($1::text)", long) == [["30000000"]]
        monkeypatch.setattr("interlock.stores.advisory.postgres.IO_TIMEOUT", 0.5)
        os.kill(session.pid, signal.SIGSTOP)
        try:
            with pytest.raises(UnknownOutcome), ThreadPoolExecutor(1) as threads:
                threads.submit(session.rows, "SELECT length($1::text)", long).result(WAIT_LIMIT)
        finally:
            os.kill(session.pid, signal.SIGCONT)


def test_a_replica_is_refused_until_it_takes_over(own_server: PostgresServer) -> None:
    with interlock.connect(url_of(own_server)) as locks, PostgresReplica(own_server) as replica:
        held = locks.lock("book").acquire()
        with interlock.connect(url_of(replica)) as others:
            for timeout in (0, 0.5):
                with pytest.raises(StoreError, match="is a replica"):
                    others.lock("book").acquire(timeout=timeout)
            with psycopg.connect(replica.url, autocommit=True) as there:
                seen = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'interlock %'"
                eventually(lambda: not there.execute(seen).fetchall())  # what was refused stays not open
            own_server.kill()
            replica.promote()
            eventually(lambda: held.lost)
            with others.lock("book", timeout=20) as grant:
                assert grant.fence > held.fence


def test_connections_on_which_nothing_is_said_are_kept_alive_from_both_sides(
    server: PostgresServer, other: Any
) -> None:
    """Of the session that carries locks and of the one that waits."""
    other.execute("SELECT pg_advisory_lock(%s)", [KEY])
    with interlock.connect(url_of(server)) as locks, ThreadPoolExecutor() as pool:
        waiting = pool.submit(locks.lock("book").acquire, timeout=20)
        eventually(lambda: other.execute(WAITING).fetchone())
        ours = list(sessions_of(locks))
        assert len(ours) == 2
        for session in ours:
            with socket.socket(fileno=os.dup(session.socket)) as connection:
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                wanted = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}
                found = {name: connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in wanted}
            assert found == wanted
        other.execute("SELECT pg_advisory_unlock(%s)", [KEY])
        waiting.result(20).release()
        names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        for session in ours:
            if session.alive:
                assert [session.rows(f"SHOW {name}")[0][0] for name in names] == ["15", "5", "3", "20000"]


@pytest.mark.parametrize("level", LEVELS)
def test_defaults_of_the_role_change_nothing(server: PostgresServer, other: Any, level: str) -> None:
    """Its isolation level, and that it may only read unless a transaction says otherwise."""
    defaults = {"default_transaction_read_only": "on", "default_transaction_isolation": f"'{level}'"}
    defaults |= {"default_transaction_deferrable": "on"}
    if not other.execute("SELECT FROM pg_roles WHERE rolname = 'reader'").fetchall():
        other.execute("CREATE ROLE reader LOGIN SUPERUSER")
    for name, value in defaults.items():
        other.execute(f"ALTER ROLE reader SET {name} = {value}")
    url = url_of(server).replace("postgres@", "reader@")
    with interlock.connect(url) as locks, interlock.connect(f"{url}?max_waiting=4") as others:
        number = 0

        def add(mine: Any) -> None:
            nonlocal number
            for _ in range(10):
                with mine.lock("number", timeout=30):
                    known = number
                    mine.claims("number")
                    number = known + 1

        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(add, mine) for mine in (locks, others) * 2]:
                done.result(60)
        assert number == 40
        with locks.rwlock("page").read() as first, others.rwlock("page").read() as second:
            assert second.fence > first.fence
            assert others.lock("page").acquire(timeout=0) is None
            for session in sessions_of(locks):
                assert session.rows("SHOW transaction_isolation") == [["read committed"]]


def test_a_pooler_that_begins_to_lend_sessions_is_noticed_at_the_next_renewal(server: PostgresServer) -> None:
    """Its mode is changed while a session is open: from then on that is anybody's between two statements."""
    need("pgbouncer")
    config = {"pool_mode": "session", "default_pool_size": "20"}
    with (
        PgBouncer((server.host, server.port, server.user), config=config) as pooler,
        interlock.connect(url_of(pooler)) as locks,
    ):
        told = threading.Event()
        grant = locks.lock("book", ttl=600, renew=False, on_lost=lambda _: told.set()).acquire()
        (session,) = sessions_of(locks)
        pooler.reload({"pool_mode": "transaction"})
        with psycopg.connect(pooler.url, autocommit=True) as stranger:

            def is_lent() -> bool:
                stranger.execute("ROLLBACK")
                session.rows("SELECT 1")  # after which the pooler may lend it
                stranger.execute("BEGIN")
                return stranger.execute("SELECT pg_backend_pid()").fetchone() == (session.pid,)

            eventually(is_lent)
            assert not grant.renew()
            assert told.wait(20)
            assert grant.lost
            with pytest.raises(StoreError, match="pooler in transaction mode"):
                locks.lock("book").acquire(timeout=0)
            stranger.execute("ROLLBACK")


def test_a_waiter_that_is_the_victim_of_a_deadlock_waits_on(own_server: PostgresServer) -> None:
    """The holder makes an index, which waits for all transactions of before: also for the one of the waiter."""
    with (
        psycopg.connect(own_server.url, autocommit=True) as other,
        psycopg.connect(own_server.url, autocommit=True) as third,
        ThreadPoolExecutor() as pool,
    ):
        other.execute("CREATE TABLE books (name text)")
        other.execute("ALTER ROLE postgres SET deadlock_timeout = '2s'")  # of the waiter, who looks once
        other.execute("SET deadlock_timeout = '5min'")
        other.execute("SELECT pg_advisory_lock(%s)", [KEY])
        with (
            interlock.connect(url_of(own_server)) as locks,
            psycopg.connect(own_server.url, autocommit=True) as third,
        ):
            waiting = pool.submit(locks.lock("book").acquire, timeout=100)
            (first,) = eventually(lambda: third.execute(WAITING).fetchone())
            making = pool.submit(other.execute, "CREATE INDEX CONCURRENTLY ON books (name)")
            deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            making.result(60)
            eventually(lambda: third.execute(deadlocks).fetchone() != (0,), 60)
            eventually(lambda: third.execute(WAITING).fetchone())
            assert not waiting.done()
            assert first in [session.pid for session in sessions_of(locks)]
            other.execute("SELECT pg_advisory_unlock(%s)", [KEY])
            grant = waiting.result(20)
            assert grant.held
            assert grant.release() is True
            assert third.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
