"""Unusual settings of databases, roles, engines and poolers: refused with a clear error, or corrected."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

import interlock
from interlock.api.connect import open_store
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.errors import InvalidArgument, StoreError
from interlock.runtime._threads import fresh_id
from interlock.stores.postgresql.ddl import ddl, undo
from interlock.testing.waiting import eventually
from tests.postgresql.conftest import Ask
from tests.servers import PostgresServer, Proxy
from tests.support.client_actors import side
from tests.support.concurrent_callers import no_update_is_lost


def two_lose_no_update(url: str, rounds: int = 25, pause: float = 0.0) -> None:
    """Check that four threads on two clients lose no update."""
    with interlock.connect(url) as one, interlock.connect(url) as two:
        no_update_is_lost([one, two], rounds, pause)


@pytest.mark.parametrize("level", ["read uncommitted", "read committed", "repeatable read", "serializable"])
def test_the_default_isolation_does_not_matter(url: str, role: Any, level: str) -> None:
    role(f"default_transaction_isolation = '{level}'")
    two_lose_no_update(url)


def test_a_role_that_reads_only_by_default_is_set_right(url: str, role: Any) -> None:
    with interlock.connect(url) as locks:
        locks.lock("a").acquire().release()
    role("default_transaction_read_only = on")
    two_lose_no_update(url)


@pytest.mark.parametrize(
    "setting", ["statement_timeout = '1s'", "lock_timeout = '1s'", "idle_session_timeout = '300ms'"]
)
def test_time_outs_of_the_role_lose_nothing(url: str, role: Any, setting: str) -> None:
    """Each connection is idle for longer than the time-out once; even on a busy machine a statement takes less."""
    role(setting)
    two_lose_no_update(url, pause=0.6)


@pytest.fixture
def lazy_server(ask: Ask) -> Iterator[None]:
    """Let the server write asynchronous commits to the disk much later."""
    ask("ALTER SYSTEM SET wal_writer_delay = '10s'")
    ask("SELECT pg_reload_conf()")
    yield
    ask("ALTER SYSTEM RESET wal_writer_delay")
    ask("SELECT pg_reload_conf()")


def checkpoint(ask: Ask) -> str:
    """Write everything to the disk; return where the next change will be in the log."""
    ask("CHECKPOINT")
    return str(ask("SELECT pg_current_wal_insert_lsn()")[0][0])


def was_flushed(ask: Ask, before: str) -> bool:
    """Return True if the first change after `checkpoint` is on the disk; later notifications do not matter."""
    return bool(ask("SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", before)[0][0])


@pytest.mark.parametrize(
    ("ttl", "ahead", "act", "durable"),
    [(5, 0, "", False), (60, 0, "", True), (5, 3600, "", True), (5, 0, "evict", True), (5, 0, "done", True)],
)
def test_changes_not_covered_by_the_grace_are_synced_to_disk(
    url: str, ask: Ask, role: Any, lazy_server: None, ttl: float, ahead: float, act: str, durable: bool
) -> None:
    """Leases longer than the grace, fences ahead of the clock, evictions, records of completed runs."""
    role("synchronous_commit = off")
    with interlock.connect(url) as locks:
        lock = locks.lock("a", ttl=ttl)
        lock.acquire().release()
        ask(f"UPDATE {url.rpartition('=')[2]} SET top = top + {ahead * 1_000_000}")
        before = checkpoint(ask)
        grant = lock.acquire()
        if act:
            before = checkpoint(ask)
        if act == "evict":
            locks.evict("a")
        elif act == "done":
            with closing(open_store(url).queue()) as queue:
                assert queue.leave(Claim(grant.id, LockSpec(f"{SEPARATOR}a")), 60.0)
        assert was_flushed(ask, before) is durable
        grant.release()


@pytest.mark.parametrize(
    ("ttl", "act", "durable"), [(5, "leave", False), (60, "leave", True), (5, "evict", True), (5, "done", True)]
)
def test_a_promotion_not_covered_by_the_grace_is_synced_to_disk(
    url: str, ask: Ask, role: Any, lazy_server: None, ttl: float, act: str, durable: bool
) -> None:
    """Neither are an eviction and a record."""
    role("synchronous_commit = off")
    with closing(open_store(url).queue()) as queue:
        first, second = (Claim(fresh_id(), LockSpec(f"{SEPARATOR}a", ttl=each)) for each in (5, ttl))
        assert queue.enter(first, None, False, False).state == "using"
        assert queue.enter(second, queue.subscribe(), True, False).state == "pending"
        before = checkpoint(ask)
        assert queue.evict(first.spec.key, first.id) if act == "evict" else queue.leave(first, 60.0 * (act == "done"))
        assert was_flushed(ask, before) is durable


def test_without_the_table_the_error_says_how_to_make_it(server: PostgresServer) -> None:
    with (
        interlock.connect(f"{server.url}?table=nowhere&create=false") as locks,
        pytest.raises(StoreError, match="let its owner run"),
    ):
        locks.lock("a").acquire()


def test_a_schema_and_a_table_of_the_users_choice(server: PostgresServer, ask: Ask) -> None:
    ask("CREATE SCHEMA IF NOT EXISTS apart")
    ask(ddl("kept", "apart"))
    ask(ddl("kept", "apart"))
    with interlock.connect(f"{server.url}?table=kept&schema=apart") as locks, locks.lock("a"):
        assert ask("SELECT name FROM apart.kept WHERE id <> ''") == [("a",)]
    ask("DROP TABLE apart.kept")
    ask(undo("kept", "apart"))
    ask("DROP SCHEMA apart")  # refused if anything is left


@pytest.mark.parametrize(
    "query", ["table=a-b", "schema=a.b", "table=", "create=perhaps", "max_connections=0", "timeout=x", "grace=-1"]
)
def test_options_that_make_no_sense_are_refused(server: PostgresServer, query: str) -> None:
    with pytest.raises(InvalidArgument):
        interlock.connect(f"{server.url}?{query}")


def test_an_option_that_libpq_does_not_know_is_refused(server: PostgresServer) -> None:
    with pytest.raises(InvalidArgument, match="colour"):
        interlock.connect(f"{server.url}?colour=blue")


def test_fifty_waiters_use_few_connections_and_statements(server: PostgresServer, url: str, ask: Ask) -> None:
    with Proxy(server.host, server.port) as wire, interlock.connect(url) as locks:
        through = url.replace(f":{server.port}/", f":{wire.port}/") + "&sslmode=disable"
        with interlock.connect(through) as others, ThreadPoolExecutor(50) as pool:
            grant = locks.lock("a").acquire()
            waiting = [pool.submit(lambda: others.lock("a").acquire().release()) for _ in range(50)]
            eventually(lambda: len(locks.claims("a")) == 51, 30)
            asked = wire.sent.count(b"_enter")
            threading.Event().wait(5)
            assert wire.sent.count(b"_enter") - asked < 250
            there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlock'"
            assert ask(there)[0][0] <= 4 + 1 + 1  # for steps, to listen, and the holder's
            grant.release()
            assert all(each.result(60) for each in waiting)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("postgres@", "nobody@", "Check that the role exists"), ("/postgres?", "/nowhere?", "database does not exist")],
)
def test_who_is_not_let_in_is_told_why_at_once(url: str, sync_or_async: str, old: str, new: str, said: str) -> None:
    with side(sync_or_async, url.replace(old, new)) as ours, pytest.raises(StoreError, match=said):
        ours.take("a")
