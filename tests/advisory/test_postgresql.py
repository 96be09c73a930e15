"""Known problems of PostgreSQL's advisory locks."""

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest

import interlock
from interlock import StoreError
from interlock.core.errors import Unsupported
from interlock.testing.other_process import Remote
from interlock.testing.waiting import eventually
from tests.servers import PgBouncer, PostgresReplica, PostgresServer, need
from tests.support.client_actors import SYNC_AND_ASYNC, side
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
        pytest.raises(StoreError, match="pooler in front"),
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


def test_fences_increase_over_a_fail_over_that_lost_sessions(own_server: PostgresServer) -> None:
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


def test_a_role_that_may_not_make_the_sequence_gets_advice(own_server: PostgresServer) -> None:
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


def test_a_role_with_an_empty_search_path_names_the_schema(own_server: PostgresServer) -> None:
    owner = OnPostgres(own_server)
    owner.ask("ALTER ROLE postgres SET search_path = ''")
    with interlock.connect(url_of(own_server)) as locks, pytest.raises(StoreError, match=r"\?sequence=schema.name"):
        locks.lock("book").acquire()
    with interlock.connect(url_of(own_server, "?sequence=public.fences")) as locks, locks.lock("book") as grant:
        assert grant.fence > 0
    owner.close()


@pytest.fixture
def remotes(server: PostgresServer) -> Iterator[list[Remote]]:
    """Three other processes."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Remote(url_of(server)))) for _ in range(3)]


def line_up(remotes: list[Remote], other: Any) -> list[int]:
    """Let one process after the other wait for "book"; return their sessions in this order."""
    sessions: list[int] = []
    for number, remote in enumerate(remotes, 1):
        remote.start("with locks.lock('book') as grant: result = grant.fence")
        eventually(lambda number=number: len(other.locks(granted=False)) == number)
        sessions += set(other.locks(granted=False)) - set(sessions)
    return sessions


@pytest.mark.parametrize("by", ["the holder", "another session"])
def test_an_index_is_made_while_processes_wait(
    server: PostgresServer, other: Any, remotes: list[Remote], by: str
) -> None:
    third = OnPostgres(server)
    other.ask("DROP TABLE IF EXISTS books")
    other.ask("CREATE TABLE books (name text)")
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = other.ask(deadlocks)
    other.ask("SET deadlock_timeout = '20s'")  # a busy machine prolongs a slice
    other.lock("book")
    line_up(remotes, other)
    with ThreadPoolExecutor() as pool:
        maker = other if by == "the holder" else third
        pool.submit(maker.ask, "CREATE INDEX CONCURRENTLY ON books (name)").result(30)
    assert other.ask(deadlocks) == before
    other.unlock("book")
    fences = [remote.answer() for remote in remotes]
    assert fences == sorted(fences)
    third.close()


def test_a_session_that_waits_again_is_granted_nothing_early(own_server: PostgresServer) -> None:
    """Nor does the server log an error at the end of a slice."""
    other = OnPostgres(own_server)
    fences = []
    with interlock.connect(url_of(own_server)) as locks, ThreadPoolExecutor() as pool:
        for _ in range(3):
            other.lock("book")
            found = pool.submit(locks.lock("book").acquire, timeout=60)
            (session,) = eventually(lambda: other.locks(granted=False))
            begun = f"SELECT query_start FROM pg_stat_activity WHERE pid = {session}"
            for _ in range(2):
                before = other.ask(begun)
                eventually(lambda begun=begun, before=before: other.ask(begun) != before)
            assert not found.done()
            assert other.locks() == [other.number]
            other.unlock("book")
            fences.append(found.result(20).fence)
            assert locks.lock("book").acquire(timeout=0) is None
            assert found.result().release()
    other.close()
    assert fences == sorted(set(fences))
    assert "statement timeout" not in own_server.log.read_text()


@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_who_waits_leaves_no_transaction_open(server: PostgresServer, other: Any, sync_or_async: str) -> None:
    with side(sync_or_async, url_of(server)) as one:
        other.lock("book")
        waits = one.waits("book")
        (session,) = eventually(lambda: other.locks(granted=False))
        begun = f"SELECT xact_start FROM pg_stat_activity WHERE pid = {session}"
        first = eventually(lambda: other.ask(begun) != [None] and other.ask(begun))
        eventually(lambda: other.ask(begun) not in (first, [None]))
        assert not waits.done()
        other.unlock("book")
        assert one.do(waits.result(20).release)


def test_a_place_is_kept_over_many_slices(other: Any, remotes: list[Remote]) -> None:
    other.lock("book")
    sessions = line_up(remotes, other)
    for session in sessions:
        begun = f"SELECT query_start FROM pg_stat_activity WHERE pid = {session}"
        for _ in range(3):
            before = other.ask(begun)
            eventually(lambda begun=begun, before=before: other.ask(begun) != before)
    other.unlock("book")
    fences = [remote.answer() for remote in remotes]
    assert fences == sorted(fences)


def test_waiters_of_other_processes_are_shown_in_their_order(locks: Any, other: Any, remotes: list[Remote]) -> None:
    with locks.lock("book"):
        sessions = line_up(remotes, other)
        views = locks.claims("book")
        assert [view.state for view in views] == ["using", "pending", "pending", "pending"]
        assert [view.id for view in views[1:]] == [f"session {each}" for each in sessions]
        since = [view.since for view in views[1:]]
        assert since == sorted(since)
        assert all(abs(each - time.time()) < 60 for each in since)


def test_a_stopped_waiter_is_passed(other: Any, remotes: list[Remote]) -> None:
    other.lock("book")
    stopped = line_up(remotes, other)[0]
    remotes[0].signal(signal.SIGSTOP)
    state = f"SELECT state FROM pg_stat_activity WHERE pid = {stopped}"
    eventually(lambda: other.ask(state) == ["idle"])  # its slice is over; within it the server would grant the lock
    other.unlock("book")
    fences = [remote.answer(10) for remote in remotes[1:]]
    remotes[0].signal(signal.SIGCONT)
    assert remotes[0].answer() > max(fences)
