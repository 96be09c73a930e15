"""Known problems of PostgreSQL's advisory locks."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import interlock
from interlock import StoreError
from interlock.core.errors import Unsupported
from interlock.testing.waiting import eventually
from tests.servers import PgBouncer, PostgresReplica, PostgresServer, need
from tests.support.databases import OnPostgres, cut_off, started, url_of

LEVELS = ["read uncommitted", "read committed", "repeatable read", "serializable"]
TIME_OUTS = ("idle_session_timeout", "statement_timeout", "lock_timeout")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for all tests of this module that do not change it."""
    yield from started("postgresql")


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server for a test that changes or stops it."""
    yield from started("postgresql")


def test_time_outs_of_the_role_do_not_free_it_or_end_a_wait(own_server: PostgresServer) -> None:
    other = OnPostgres(own_server)
    for name in TIME_OUTS:
        other.ask(f"ALTER ROLE postgres SET {name} = '300ms'")
    with interlock.connect(url_of(own_server)) as locks, ThreadPoolExecutor() as pool, locks.lock("held") as grant:
        other.lock("book")
        found = pool.submit(locks.lock("book").acquire, timeout=20)
        waits = eventually(lambda: other.locks(granted=False))
        time.sleep(1)  # longer than three of the time-outs: it must still wait
        assert other.locks(granted=False) == waits
        other.unlock("book")
        assert found.result(20).held
        assert grant.renew()
    other.close()


@pytest.mark.parametrize("level", LEVELS)
def test_defaults_of_the_role_change_nothing(server: PostgresServer, other: Any, level: str) -> None:
    """The isolation level, and read-only transactions by default."""
    defaults = {"default_transaction_read_only": "on", "default_transaction_isolation": f"'{level}'"}
    defaults |= {"default_transaction_deferrable": "on"}
    if not other.ask("SELECT rolname FROM pg_roles WHERE rolname = 'reader'"):
        other.ask("CREATE ROLE reader LOGIN SUPERUSER")
    for name, value in defaults.items():
        other.ask(f"ALTER ROLE reader SET {name} = {value}")
    with interlock.connect(url_of(server).replace("postgres@", "reader@")) as locks:
        other.lock("book")
        with ThreadPoolExecutor() as pool:
            found = pool.submit(locks.lock("book").acquire, timeout=20)
            (waits,) = eventually(lambda: other.locks(granted=False))
            # A snapshot that it kept would hold back VACUUM for as long as it waits.
            assert other.ask(f"SELECT backend_xid FROM pg_stat_activity WHERE pid = {waits}") == [None]
            other.unlock("book")
            assert found.result(20).release()


def test_a_reader_does_not_pass_an_exclusive_waiter(locks: Any, other: Any) -> None:
    readers = [locks.rwlock("book").read().acquire(timeout=0) for _ in range(3)]
    assert len({reader.fence for reader in readers}) == 3
    writer = threading.Thread(target=other.lock, args=("book",))
    writer.start()
    eventually(lambda: [view.state for view in locks.claims("book")].count("pending") == 1)
    assert locks.rwlock("book").read().acquire(blocking=False) is None
    assert all(reader.release() for reader in readers)
    writer.join(20)
    other.unlock("book")
    assert locks.rwlock("book").read().acquire().release()


def test_semaphores_are_refused_with_a_store_that_has_them(locks: Any) -> None:
    with pytest.raises(Unsupported, match="postgresql://"):
        locks.semaphore("book", 3)
    assert locks.semaphore("book", 1).acquire(timeout=0) is not None


@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_a_pooler_is_refused(server: PostgresServer, mode: str) -> None:
    need("pgbouncer")
    with (
        PgBouncer((server.host, server.port, server.user), config={"pool_mode": mode}) as pooler,
        interlock.connect(url_of(pooler)) as locks,
        pytest.raises(StoreError, match="is a pooler"),
    ):
        locks.lock("book").acquire()


def test_a_replica_is_refused_until_it_takes_over(own_server: PostgresServer) -> None:
    with interlock.connect(url_of(own_server)) as locks, PostgresReplica(own_server) as replica:
        held = locks.lock("book").acquire()
        with interlock.connect(url_of(replica)) as others:
            for timeout in (0, 0.5):
                with pytest.raises(StoreError, match="is a replica"):
                    others.lock("book").acquire(timeout=timeout)
            own_server.kill()
            replica.promote()
            eventually(lambda: held.lost)
            with others.lock("book", timeout=20) as grant:
                assert grant.fence > held.fence


def test_fences_increase_over_a_fail_over_that_lost_how_sessions_were_opened(own_server: PostgresServer) -> None:
    with interlock.connect(url_of(own_server)) as locks:
        locks.lock("book").acquire().release()
    with PostgresReplica(own_server) as replica, psycopg.connect(replica.url, autocommit=True) as there:
        cut_off(there)
        for _ in range(5):  # sessions that are opened in the moment before it
            with interlock.connect(url_of(own_server)) as locks:
                before = locks.lock("book").acquire()
        own_server.kill()
        replica.promote()
        with interlock.connect(url_of(replica)) as locks, locks.lock("book") as after:
            assert after.fence > before.fence


def test_a_role_that_may_not_make_the_sequence_is_told_what_to_do(own_server: PostgresServer) -> None:
    owner = OnPostgres(own_server)
    owner.ask("CREATE ROLE plain LOGIN")
    owner.ask("REVOKE CREATE ON SCHEMA public FROM public")
    with interlock.connect(url_of(own_server).replace("postgres@", "plain@")) as locks:
        with pytest.raises(StoreError, match="CREATE SEQUENCE") as error:
            locks.lock("book").acquire()
        assert "GRANT USAGE, UPDATE" in str(error.value)
        owner.ask("CREATE SEQUENCE interlock_fence")
        owner.ask("GRANT USAGE, UPDATE ON SEQUENCE interlock_fence TO plain")
        with locks.lock("book") as grant:
            assert grant.fence > 0
    owner.close()


def test_a_waiter_that_is_the_victim_of_a_deadlock_waits_on(own_server: PostgresServer) -> None:
    """The holder creates an index, which waits for all earlier transactions, including the waiter's."""
    other, third = OnPostgres(own_server), OnPostgres(own_server)
    other.ask("CREATE TABLE books (name text)")
    other.ask("ALTER ROLE postgres SET deadlock_timeout = '2s'")  # of the waiter, which checks for a deadlock once
    other.ask("SET deadlock_timeout = '5min'")
    other.lock("book")
    with interlock.connect(url_of(own_server)) as locks, ThreadPoolExecutor() as pool:
        found = pool.submit(locks.lock("book").acquire, timeout=100)
        eventually(lambda: third.locks(granted=False))
        pool.submit(other.ask, "CREATE INDEX CONCURRENTLY ON books (name)").result(60)
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        eventually(lambda: third.ask(deadlocks) != [0], 60)
        eventually(lambda: third.locks(granted=False))
        assert not found.done()
        other.unlock("book")
        assert found.result(20).release() is True
        assert third.locks() == []
    other.close()
    third.close()
