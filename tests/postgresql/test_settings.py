"""Databases, roles, engines and poolers that are set otherwise: refused with a clear error, or set right."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.waiting import eventually
from tests.servers import PgBouncer, PostgresServer, need

Ask = Callable[..., list[Any]]


def careless(locks: Any, box: list[int], rounds: int, pause: float) -> None:
    """Add to a counter in a way that loses updates unless it runs alone; rest once."""
    for number in range(rounds):
        if number == rounds // 2:
            threading.Event().wait(pause)
        with locks.lock("a"):
            seen = box[0]
            threading.Event().wait(0.0005)
            box[0] = seen + 1


def no_update_is_lost(url: str, rounds: int = 25, pause: float = 0.0) -> None:
    """Let four threads on two connections count."""
    box = [0]
    with interlock.connect(url) as one, interlock.connect(url) as two, ThreadPoolExecutor() as pool:
        for done in [pool.submit(careless, locks, box, rounds, pause) for locks in (one, one, two, two)]:
            done.result(60)
    assert box == [4 * rounds]


@pytest.mark.parametrize("level", ["read uncommitted", "read committed", "repeatable read", "serializable"])
def test_the_default_isolation_does_not_matter(url: str, role: Any, level: str) -> None:
    role(f"default_transaction_isolation = '{level}'")
    no_update_is_lost(url)


def test_a_role_that_reads_only_by_default_is_set_right(url: str, role: Any) -> None:
    with interlock.connect(url) as locks:
        locks.lock("a").acquire().release()
    role("default_transaction_read_only = on")
    no_update_is_lost(url)


@pytest.mark.parametrize(
    "setting", ["statement_timeout = '1s'", "lock_timeout = '1s'", "idle_session_timeout = '300ms'"]
)
def test_time_outs_of_the_role_lose_nothing(url: str, role: Any, setting: str) -> None:
    """Each connection is idle for longer than that once; a busy machine is never so long about a single one."""
    role(setting)
    no_update_is_lost(url, pause=0.6)


@pytest.fixture
def lazy_server(ask: Ask) -> Iterator[None]:
    """A server that writes asynchronous commits to the disk much later."""
    ask("ALTER SYSTEM SET wal_writer_delay = '10s'")
    ask("SELECT pg_reload_conf()")
    yield
    ask("ALTER SYSTEM RESET wal_writer_delay")
    ask("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("ttl", "ahead", "evict", "durable"),
    [(5, 0, False, False), (60, 0, False, True), (5, 3600, False, True), (5, 0, True, True)],
)
def test_what_the_grace_after_a_crash_does_not_cover_is_on_the_disk_at_once(
    url: str, ask: Ask, role: Any, lazy_server: None, ttl: float, ahead: float, evict: bool, durable: bool
) -> None:
    """Leases longer than the grace, fences ahead of the clock, evictions."""
    role("synchronous_commit = off")
    with interlock.connect(url) as locks:
        lock = locks.lock("a", ttl=ttl)
        lock.acquire().release()
        ask(f"UPDATE {url.rpartition('=')[2]} SET top = top + {ahead * 1_000_000}")
        ask("CHECKPOINT")
        grant = lock.acquire()
        if evict:
            locks.evict("a")
        assert ask("SELECT pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn()") == [(durable,)]
        grant.release()


def test_without_the_table_the_error_says_how_to_make_it(server: PostgresServer) -> None:
    with interlock.connect(f"{server.url}?table=nowhere") as locks, pytest.raises(StoreError, match="create=true"):
        locks.lock("a").acquire()


def test_a_schema_and_a_table_of_the_users_choice(server: PostgresServer, ask: Ask) -> None:
    ask("CREATE SCHEMA IF NOT EXISTS apart")
    ask(ddl("kept", "apart"))
    ask(ddl("kept", "apart"))
    with interlock.connect(f"{server.url}?table=kept&schema=apart") as locks, locks.lock("a"):
        assert ask("SELECT name FROM apart.kept WHERE id <> ''") == [("a",)]


@pytest.mark.parametrize(
    "query", ["table=a-b", "schema=a.b", "table=", "create=perhaps", "max_connections=0", "timeout=x", "grace=-1"]
)
def test_options_that_make_no_sense_are_refused(server: PostgresServer, query: str) -> None:
    with pytest.raises(InvalidArgument):
        interlock.connect(f"{server.url}?{query}")


def test_an_option_that_libpq_does_not_know_is_refused(server: PostgresServer) -> None:
    with pytest.raises(InvalidArgument, match="colour"):
        interlock.connect(f"{server.url}?colour=blue")


def test_old_names_are_swept(url: str, ask: Ask) -> None:
    from interlock.runtime.sync import run

    table = url.rpartition("=")[2]
    with interlock.connect(url) as locks:
        for number in range(100):
            locks.lock(f"once {number}").acquire().release()
        held = locks.lock("held").acquire()
        old = 120_000_000
        ask(f"UPDATE {table} SET top = top - {old}, fence = greatest(0, fence - {old}) WHERE name <> 'held'")
        swept = run(locks.store._ask(locks.store._texts.sweep(1000, 60)))
        assert int(swept[0][0]) == 100
        assert held.release() is True


def test_idle_names_cost_no_index_writes(url: str, ask: Ask) -> None:
    """An uncontended pair updates one row in place."""
    table = url.rpartition("=")[2]
    with interlock.connect(url) as locks:
        for _ in range(50):
            locks.lock("a").acquire().release()
        updates = "SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s"
        eventually(lambda: ask(updates, table)[0][1] >= 99, 20)
        inserted, updated, hot = ask(updates, table)[0]
        assert (inserted, updated) == (1, hot)


def test_an_engine_of_the_program(server: PostgresServer, ask: Ask) -> None:
    """Its pool is used up, and its connections are none of ours."""
    ask(ddl())
    engine = create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), pool_size=1, max_overflow=0)
    try:
        with engine.connect() as connection, interlock.connect(engine) as locks:
            connection.execute(text("SELECT 1"))
            with locks.lock("engine") as grant:
                assert grant.fence > 0
                with interlock.connect(server.url) as others:
                    assert others.lock("engine").acquire(timeout=0) is None
    finally:
        engine.dispose()


def test_an_engine_whose_default_is_serializable(server: PostgresServer, ask: Ask) -> None:
    ask(ddl())
    engine = create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="SERIALIZABLE")
    try:
        with interlock.connect(engine) as locks, locks.lock("engine"):
            assert len(locks.claims("engine")) == 1
    finally:
        engine.dispose()


def test_an_async_engine_of_the_program(server: PostgresServer, ask: Ask) -> None:
    ask(ddl())

    async def play() -> None:
        engine = create_async_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), pool_size=1)
        async with engine.connect(), interlock.aconnect(engine) as locks, locks.lock("engine") as grant:
            assert grant.fence > 0
        await engine.dispose()

    asyncio.run(play())


def test_what_is_no_engine_is_refused(server: PostgresServer) -> None:
    engine = create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"))
    sqlite = create_engine("sqlite://")
    try:
        with engine.connect() as connection, Session(engine) as session:
            for each in (connection, session):
                with pytest.raises(InvalidArgument, match="engine"):
                    interlock.connect(each)
        with pytest.raises(InvalidArgument, match="AsyncEngine"):
            interlock.aconnect(engine)
        with pytest.raises(InvalidArgument, match="in memory"):  # that store's own answer
            interlock.connect(sqlite)
    finally:
        engine.dispose()
        sqlite.dispose()


@pytest.fixture
def bouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler before the server, which gives each transaction another session."""
    need("pgbouncer")
    with PgBouncer((server.host, server.port, server.user)) as bouncer:
        yield bouncer


def test_behind_a_pooler_in_transaction_mode(bouncer: PgBouncer, url: str, ask: Ask) -> None:
    pooled = f"{bouncer.url}?{url.partition('?')[2]}"
    no_update_is_lost(pooled)
    assert ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


def test_behind_a_pooler_waiters_look_and_do_not_listen(bouncer: PgBouncer, url: str) -> None:
    pooled = f"{bouncer.url}?{url.partition('?')[2]}"
    with interlock.connect(pooled) as locks, interlock.connect(pooled) as others, ThreadPoolExecutor() as pool:
        grant = locks.lock("a").acquire()
        waiting = pool.submit(others.lock("a").acquire)
        eventually(lambda: len(locks.claims("a")) == 2)
        assert not others.store._listener.live
        grant.release()
        waiting.result(10).release()


def test_fifty_waiters_are_two_connections_and_less_than_a_statement_a_second_each(
    url: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.stores.sql.pool.UNUSED", 1.0)  # on a busy machine there are more at first
    with interlock.connect(url) as locks, interlock.connect(url) as others, ThreadPoolExecutor(50) as pool:
        grant = locks.lock("a").acquire()
        asked: list[Any] = []
        wire = others.store._server
        ask_really = wire.ask
        wire.ask = lambda statement: (asked.append(statement), ask_really(statement))[1]
        waiting = [pool.submit(lambda: others.lock("a").acquire().release()) for _ in range(50)]
        eventually(lambda: len(locks.claims("a")) == 51, 30)
        asked.clear()
        threading.Event().wait(5)
        assert len(asked) < 250
        there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlock'"
        eventually(lambda: ask(there)[0][0] <= 2 + 1)  # the holder has one
        grant.release()
        assert all(each.result(60) for each in waiting)
