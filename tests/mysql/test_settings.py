"""Settings of the server, the account and the program's engine that must not weaken a lock."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.testing.waiting import eventually
from tests.mysql.conftest import Ask
from tests.servers import MariaServer, TlsFiles, need
from tests.support.concurrent_callers import no_update_is_lost

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
WRONG = "SET autocommit = 0, sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,SIMULTANEOUS_ASSIGNMENT', time_zone = '+11:45'"


@pytest.fixture
def engine_url(server: MariaServer) -> str:
    server.start()
    with interlock.connect(f"{server.url}?create=true") as locks:
        locks.lock("a").acquire().release()
    return server.url.replace("mysql:", "mysql+pymysql:")


@pytest.mark.parametrize("level", LEVELS)
def test_the_engines_settings_change_nothing(engine_url: str, level: str) -> None:
    engine = create_engine(engine_url, isolation_level=level, connect_args={"init_command": WRONG})

    @event.listens_for(engine, "connect")
    def hook(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")

    with interlock.connect(engine) as locks:
        no_update_is_lost([locks], 10)
        assert engine.pool.checkedout() == 0
    engine.dispose()


def test_tasks_take_the_same_engine(engine_url: str) -> None:
    engine = create_engine(engine_url)

    async def play() -> None:
        async with interlock.aconnect(engine) as locks, locks.lock("a") as grant:
            assert [view.id for view in await locks.claims("a")] == [grant.id]

    asyncio.run(play())


def test_an_engine_that_returns_bytes_for_text(engine_url: str) -> None:
    engine = create_engine(f"{engine_url}?charset=utf8mb3&use_unicode=0")
    with interlock.connect(engine) as locks, locks.lock("ä", label="ö") as grant:
        assert locks.lock("ä").acquire(timeout=0) is None
        assert [(view.id, view.label) for view in locks.claims("ä")] == [(grant.id, "ö")]
    engine.dispose()


def test_what_is_no_engine_is_refused_with_what_to_do(engine_url: str) -> None:
    with create_engine(engine_url).connect() as connection, pytest.raises(InvalidArgument, match="is not an Engine"):
        interlock.connect(connection)


def test_a_read_only_server_is_refused_also_to_an_administrator(url: str, ask: Ask) -> None:
    with interlock.connect(url) as locks:
        locks.lock("a").acquire().release()
        ask("SET GLOBAL read_only = 1")
        try:
            with interlock.connect(url) as others, pytest.raises(StoreError, match="Connect to the primary"):
                others.lock("a").acquire()
        finally:
            ask("SET GLOBAL read_only = 0")


def test_a_server_turned_read_only_refuses_open_connections(url: str, ask: Ask) -> None:
    ask("CREATE OR REPLACE USER app@'127.0.0.1'")
    ask("GRANT ALL ON interlock.* TO app@'127.0.0.1'")
    with interlock.connect(url.replace("root@", "app@")) as locks:
        grant = locks.lock("a").acquire()
        ask("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(StoreError, match="Connect to the primary"):
                grant.renew()
        finally:
            ask("SET GLOBAL read_only = 0")
        grant.renew()
        assert grant.release() is True


def test_the_binary_log_may_have_statements(url: str) -> None:
    with MariaServer(config={"log-bin": "log", "binlog-format": "STATEMENT", "skip-log-bin": "0"}) as server:
        with interlock.connect(f"{server.url}?create=true") as locks:
            no_update_is_lost([locks], 3)


def test_a_missing_table_and_missing_rights_say_what_to_do(url: str, ask: Ask) -> None:
    missing = url.replace("create=true", "create=false")
    with interlock.connect(missing) as locks, pytest.raises(StoreError, match="create=false"):
        locks.lock("a").acquire()
    ask("CREATE OR REPLACE USER nobody@'127.0.0.1'")
    ask("GRANT CREATE ON interlock.* TO nobody@'127.0.0.1'")
    with interlock.connect(url.replace("root@", "nobody@")) as locks, pytest.raises(StoreError, match="GRANT"):
        locks.lock("a").acquire()


@pytest.mark.parametrize(
    "option",
    [
        "timeout=0",
        "grace=x",
        "max_connections=0",
        "create=yes",
        "table=a`b",
        "tabel=a",
        "table=",
        "create=true&create=true",
    ],
)
def test_a_wrong_option_is_refused(option: str) -> None:
    with pytest.raises(InvalidArgument):
        interlock.connect(f"mysql://127.0.0.1/a?{option}")


def test_a_server_without_durable_commits_has_a_grace() -> None:
    """Leases no longer than the grace are safe; longer ones are refused."""
    with MariaServer(config={"innodb-flush-log-at-trx-commit": "0"}) as server:
        url = f"{server.url}?create=true&grace=3"
        with interlock.connect(url) as locks:
            lock = locks.lock("a", ttl=3, renew=False)
            eventually(lambda: not fails(lambda: lock.acquire(timeout=5).release()))
            grant = lock.acquire()
            with pytest.raises(StoreError, match="grace="):
                locks.lock("b", ttl=4).acquire()
            server.restart()
            with pytest.raises(StoreError, match="innodb_flush_log_at_trx_commit"):
                locks.lock("a", ttl=3).acquire(blocking=False)
            later = locks.lock("a", ttl=3).acquire(timeout=20)
            assert grant.lost
            assert later.fence > grant.fence
            later.release()


def test_a_release_during_the_grace_hands_over_after_it() -> None:
    with MariaServer(config={"innodb-flush-log-at-trx-commit": "0"}) as server, ThreadPoolExecutor() as pool:
        url = f"{server.url}?create=true&grace=6"
        with interlock.connect(url, ttl=6) as locks:
            eventually(lambda: not fails(lambda: locks.lock("a").acquire(timeout=5).release()))
            grant = locks.lock("a").acquire()
            waiting = pool.submit(locks.lock("a").acquire, timeout=30)
            eventually(lambda: len(locks.claims("a")) == 2)
            server.stop()  # in order, so that it remembers the line
            server.start()
            eventually(lambda: not fails(lambda: locks.claims("a")))
            assert len(locks.claims("a")) == 2
            checks = {check.name: check.status for check in locks.doctor()}
            assert (checks["grace"], checks["round trip"]) == ("warn", "warn")
            assert grant.release() is True
            assert [view.state for view in locks.claims("a")] == ["pending"]
            later = waiting.result(30)
            assert later.fence > grant.fence
            assert later.release() is True


@pytest.mark.parametrize("scheme", ["mysql", "mysql+advisory"])
def test_the_server_is_verified_by_the_authority_of_the_url(scheme: str, tmp_path: Path) -> None:
    need("tls")
    with MariaServer(tls=True) as server:
        url = f"{server.url.replace('mysql', scheme, 1)}?ssl_verify_identity=true&ssl_ca="
        for authority, answer in (
            (server.tls.authority, nullcontext()),
            (TlsFiles(tmp_path / "stranger").authority, pytest.raises(StoreError, match="certificate verify failed")),
        ):
            with interlock.connect(f"{url}{authority}") as locks, answer:
                locks.lock("a").acquire(timeout=0).release()


def fails(call: Callable[[], Any]) -> bool:
    try:
        call()
    except StoreError:
        return True
    return False
