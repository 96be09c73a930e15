"""Known problems of GET_LOCK, on a real MariaDB."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import interlock
from interlock import StoreError
from interlock.core.errors import Unsupported
from interlock.stores.advisory.session import SEQUENCE
from interlock.stores.advisory.statements import refused_server, refused_version
from interlock.testing.waiting import eventually
from tests.servers import MariaServer, need
from tests.support.databases import OnMaria, started, url_of

LEVELS = ["READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"]


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    """A server."""
    yield from started("mariadb")


def test_who_waits_holds_up_no_backup(locks: Any, other: Any, server: MariaServer) -> None:
    """A backup's lock waits for statements that use tables, and all writers would wait behind it."""
    locks.lock("another").acquire().release()
    other.lock("book")
    with ThreadPoolExecutor() as pool:
        found = pool.submit(locks.lock("book").acquire, timeout=60)
        eventually(lambda: other.locks(granted=False))
        backup = OnMaria(server)
        backup.ask("SET SESSION lock_wait_timeout = 5")
        backup.ask("FLUSH TABLES WITH READ LOCK")
        backup.close()
        assert not found.done()
        other.unlock("book")
        assert found.result(20).release()


def test_an_index_is_made_while_others_wait(locks: Any, other: Any, server: MariaServer) -> None:
    """A wait is no transaction of InnoDB, so nothing waits for its end, though it is one long statement."""
    locks.lock("another").acquire().release()
    third = OnMaria(server)
    third.ask("CREATE DATABASE IF NOT EXISTS shelf")
    third.ask("CREATE OR REPLACE TABLE shelf.books (name INT) ENGINE = InnoDB")
    other.lock("book")
    with ThreadPoolExecutor() as pool:
        found = pool.submit(locks.lock("book").acquire, timeout=60)
        eventually(lambda: other.locks(granted=False))
        assert third.ask("SELECT trx_id FROM information_schema.INNODB_TRX") == []
        third.ask("SET SESSION lock_wait_timeout = 5")
        third.ask("CREATE INDEX names ON shelf.books (name)")
        assert not found.done()
        other.unlock("book")
        assert found.result(20).release()
    third.close()


def test_doctor_tells_when_the_locks_of_a_dead_machine_are_free(server: MariaServer, locks: Any) -> None:
    checks = {check.name: check for check in locks.doctor()}
    assert checks["dead machine"].status == "warn"
    assert "tcp_keepalive_time = 15" in checks["dead machine"].detail
    soon = {"tcp-keepalive-time": "15", "tcp-keepalive-interval": "5", "tcp-keepalive-probes": "3"}
    with MariaServer(config=soon) as kept, interlock.connect(url_of(kept)) as locks:
        checks = {check.name: check for check in locks.doctor()}
    assert checks["dead machine"].status == "ok"
    assert "30 s" in checks["dead machine"].detail


@pytest.mark.parametrize("level", LEVELS)
def test_defaults_and_time_limits_of_the_server_change_nothing(level: str) -> None:
    """The isolation level, read-only transactions, no autocommit, the SQL mode, and time limits."""
    need("mariadb")
    with MariaServer(config={"wait-timeout": "1", "max-statement-time": "1"}) as server:
        other = OnMaria(server)
        other.ask("SET SESSION wait_timeout = 600, max_statement_time = 0")
        settings = {"tx_isolation": f"'{level}'", "tx_read_only": "1", "sql_mode": "'ANSI'", "autocommit": "0"}
        for name, value in settings.items():
            other.ask(f"SET GLOBAL {name} = {value}")
        with interlock.connect(url_of(server)) as locks, ThreadPoolExecutor() as pool, locks.lock("held") as grant:
            other.lock("book")
            found = pool.submit(locks.lock("book").acquire, timeout=20)
            (session,) = eventually(lambda: other.locks(granted=False))
            other.ask("SELECT SLEEP(2.5)")  # longer than two of the limits: it must still wait
            assert other.locks(granted=False) == [session]
            other.unlock("book")
            assert found.result(20).release()
            assert grant.renew()
        other.close()


def test_names_that_differ_in_case_are_different(locks: Any) -> None:
    with locks.lock("Book"), locks.lock("book", timeout=0):
        assert locks.lock("Book").acquire(blocking=False) is None
        assert locks.lock("book").acquire(blocking=False) is None
    assert locks.lock("book").acquire(blocking=False).release()


def test_other_kinds_are_refused(locks: Any) -> None:
    for make in (lambda: locks.rwlock("book").read(), lambda: locks.semaphore("book", 2)):
        with pytest.raises(Unsupported, match="postgresql://"):
            make()


def test_servers_whose_locks_are_not_for_all_are_refused() -> None:
    """None of them can be started here."""
    assert "Vitess" in refused_version("8.0.30-Vitess")
    assert "is not MariaDB" in refused_version("8.4.2")
    assert refused_version("11.4.2-MariaDB-log") == ""
    assert "Galera" in refused_server("0", "ON")
    assert refused_server("0", None) == ""


def test_a_read_only_server_is_refused() -> None:
    need("mariadb")
    with MariaServer(config={"read-only": "1"}) as server, interlock.connect(url_of(server)) as locks:
        with pytest.raises(StoreError, match="read-only"):
            locks.lock("book").acquire()


def test_fences_leap_where_the_clock_was_set_back(server: MariaServer, other: Any) -> None:
    with interlock.connect(url_of(server)) as locks, locks.lock("page") as grant:
        ahead = grant.fence + 10**12
    other.ask(f"SELECT SETVAL(interlock.{SEQUENCE}, {ahead})")
    with interlock.connect(url_of(server)) as locks, locks.lock("page") as grant:
        assert grant.fence > ahead + 10**6
