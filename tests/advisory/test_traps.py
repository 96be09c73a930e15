"""What goes wrong with advisory locks elsewhere, each on a real server."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import interlock
from interlock import InvalidArgument, StoreError
from interlock.stores.advisory.places import number_of
from interlock.stores.advisory.room import all_rooms
from interlock.testing.waiting import eventually, moment, since
from tests.servers import PgBouncer, PostgresReplica, PostgresServer, need

KEY = number_of("\0book")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for all tests of this module that leave it as it was."""
    need("postgres")
    with PostgresServer() as server:
        yield server


def url_of(server: Any, options: str = "") -> str:
    """The URL of advisory locks."""
    return server.url.replace(":", "+advisory:", 1) + options


@pytest.fixture
def locks(server: PostgresServer) -> Iterator[Any]:
    """Locks."""
    with interlock.connect(url_of(server)) as locks:
        yield locks


@pytest.fixture
def other(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """A session of somebody else, with plain SQL."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


def advisory(other: Any, granted: bool = True) -> int:
    """How many advisory locks there are, or are waited for."""
    row = other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = %s", [granted])
    return int(row.fetchone()[0])


def sessions(other: Any) -> list[int]:
    """The server's processes of our sessions."""
    rows = other.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'interlock %%'").fetchall()
    return [pid for (pid,) in rows]


def test_a_wait_that_ends_when_it_is_granted_leaves_nothing(locks: Any, other: Any) -> None:
    got = 0
    for number in range(60):
        other.execute("SELECT pg_advisory_lock(%s)", [KEY])
        found: list[Any] = []

        def waits(found: list[Any] = found, number: int = number) -> None:
            found.append(locks.lock("book").acquire(timeout=0.03 + number * 0.0001))

        thread = threading.Thread(target=waits)
        started = moment()
        thread.start()
        while time.monotonic() < started + 0.03:
            pass  # sleep is not exact enough to hit the moment
        other.execute("SELECT pg_advisory_unlock(%s)", [KEY])
        thread.join(20)
        if found[0] is not None:
            got += 1
            assert found[0].release()
        assert advisory(other) == 0, number
        assert advisory(other, granted=False) == 0, number
    assert locks.lock("book").acquire(blocking=False).release()


def test_time_outs_of_the_role_do_not_free_it_or_end_a_wait(own_server: PostgresServer) -> None:
    with psycopg.connect(own_server.url, autocommit=True) as other:
        for name in ("idle_session_timeout", "statement_timeout", "lock_timeout"):
            other.execute(f"ALTER ROLE postgres SET {name} = '300ms'")
        with interlock.connect(url_of(own_server)) as locks:
            with locks.lock("held") as grant:
                other.execute("SELECT pg_advisory_lock(%s)", [KEY])
                found: list[Any] = []
                thread = threading.Thread(target=lambda: found.append(locks.lock("book").acquire(timeout=20)))
                thread.start()
                eventually(lambda: advisory(other, granted=False))
                waited = sessions(other)
                time.sleep(1)  # what must not happen within three of the time-outs
                assert advisory(other, granted=False) == 1
                assert sessions(other) == waited
                other.execute("SELECT pg_advisory_unlock(%s)", [KEY])
                thread.join(20)
                assert found[0].held
                assert grant.renew()


@pytest.mark.parametrize("colour", ["threads", "tasks"])
def test_the_end_of_the_session_is_a_loss_and_told_at_once(server: PostgresServer, other: Any, colour: str) -> None:
    told = threading.Event()
    if colour == "threads":
        locks = interlock.connect(url_of(server))
        grant = locks.lock("book", ttl=600, on_lost=lambda _: told.set()).acquire()
    else:
        import asyncio

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        async def holds() -> Any:
            return interlock.aconnect(url_of(server)), loop

        locks, _ = asyncio.run_coroutine_threadsafe(holds(), loop).result(10)
        lock = locks.lock("book", ttl=600, on_lost=lambda _: told.set())
        grant = asyncio.run_coroutine_threadsafe(lock.acquire(), loop).result(10)
    started = moment()
    for pid in sessions(other):
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert told.wait(20)
    assert since(started) < 5  # its lease goes on for ten minutes
    assert grant.lost
    if colour == "threads":
        with locks.lock("book", timeout=5) as again:
            assert again.fence > grant.fence
        locks.close()
    else:
        asyncio.run_coroutine_threadsafe(locks.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def test_the_end_of_the_session_is_told_also_when_it_is_found_by_another_request(locks: Any, other: Any) -> None:
    for _ in range(10):
        told = threading.Event()
        grant = locks.lock("book", ttl=600, on_lost=lambda _, told=told: told.set()).acquire(timeout=10)
        for pid in sessions(other):
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        for _ in range(20):
            try:
                locks.lock("another").acquire().release()
            except StoreError:
                pass
        assert told.wait(10)
        assert grant.lost


def test_who_waits_on_a_session_that_ends_waits_on_another(locks: Any, other: Any, server: PostgresServer) -> None:
    other.execute("SELECT pg_advisory_lock(%s)", [KEY])
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(locks.lock("book").acquire(timeout=20)))
    thread.start()
    waiting = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    (first,) = eventually(lambda: other.execute(waiting).fetchone())
    other.execute("SELECT pg_terminate_backend(%s)", [first])
    eventually(lambda: (row := other.execute(waiting).fetchone()) is not None and row[0] != first)
    other.execute("SELECT pg_advisory_unlock(%s)", [KEY])
    thread.join(20)
    assert found[0].release()


def test_a_wait_that_somebody_cancels_goes_on(locks: Any, other: Any) -> None:
    other.execute("SELECT pg_advisory_lock(%s)", [KEY])
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(locks.lock("book").acquire(timeout=20)))
    thread.start()
    waiting = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    for _ in range(3):
        (pid,) = eventually(lambda: other.execute(waiting).fetchone())
        other.execute("SELECT pg_cancel_backend(%s)", [pid])
        eventually(lambda: other.execute(waiting).fetchone() is None or True)
    other.execute("SELECT pg_advisory_unlock(%s)", [KEY])
    thread.join(20)
    assert found[0].release()
    assert advisory(other) == 0


def test_locks_of_a_session_do_not_stack(locks: Any, other: Any) -> None:
    exclusive = locks.lock("book").acquire()
    assert locks.lock("book").acquire(blocking=False) is None  # the session would get it again
    assert locks.rwlock("book").read().acquire(blocking=False) is None
    exclusive.release()
    readers = [locks.rwlock("book").read().acquire(timeout=0) for _ in range(3)]
    assert locks.lock("book").acquire(blocking=False) is None
    assert len({reader.fence for reader in readers}) == 3
    for reader in readers:
        assert not other.execute("SELECT pg_try_advisory_lock(%s)", [KEY]).fetchone()[0]
        assert reader.release()
    assert advisory(other) == 0


def test_a_reader_does_not_pass_an_exclusive_waiter_by_the_session_of_another_reader(
    locks: Any, other: Any, server: PostgresServer
) -> None:
    reader = locks.rwlock("book").read().acquire()
    with psycopg.connect(server.url, autocommit=True) as writer:
        got = threading.Event()

        def waits() -> None:
            writer.execute("SELECT pg_advisory_lock(%s)", [KEY])
            got.set()

        threading.Thread(target=waits).start()
        eventually(lambda: advisory(other, granted=False))
        assert locks.rwlock("book").read().acquire(blocking=False) is None
        assert not got.is_set()
        reader.release()
        assert got.wait(20)
        writer.execute("SELECT pg_advisory_unlock(%s)", [KEY])
    with locks.rwlock("book").read():
        pass


def test_who_waits_blocks_no_release_and_sessions_are_few(server: PostgresServer, other: Any) -> None:
    names = [f"name {number}" for number in range(12)]
    with interlock.connect(url_of(server, "?max_waiting=3")) as locks:
        mine = [locks.lock(f"mine {number}").acquire() for number in range(50)]
        for name in names:
            other.execute("SELECT pg_advisory_lock(%s)", [number_of("\0" + name)])
        got: list[Any] = []
        crowd = [
            threading.Thread(target=lambda name=name: got.append(locks.lock(name).acquire(timeout=60)))
            for name in names + names
        ]
        for each in crowd:
            each.start()
        eventually(lambda: advisory(other, granted=False) == 3)
        for grant in mine:
            started = moment()
            assert grant.release()
            assert since(started) < 2
        assert len(sessions(other)) <= 4
        other.execute("SELECT pg_advisory_unlock_all()")
        # Each of the crowd in its turn: a grant must be released before the next of that name gets in.
        for _ in crowd:
            eventually(lambda: got)
            assert got.pop().release()
        for each in crowd:
            each.join(20)
        assert len(sessions(other)) <= 4
    assert advisory(other) == 0


def test_locks_that_cross_time_out_and_leave_nothing(locks: Any, other: Any) -> None:
    both = threading.Barrier(2)
    found = []

    def crosses(first: str, second: str) -> None:
        with locks.lock(first):
            both.wait(10)
            found.append(locks.lock(second).acquire(timeout=1.5))  # longer than deadlock_timeout

    threads = [threading.Thread(target=crosses, args=names) for names in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert None in found
    for grant in found:
        if grant is not None:
            grant.release()
    assert advisory(other) == 0


def nobody_else_has_locks() -> bool:
    """Tell whether all that the tests before have dropped is released."""
    gc.collect()
    return not any(len(room.places) for room in all_rooms)


def test_a_process_uses_no_more_locks_than_it_may(server: PostgresServer) -> None:
    eventually(nobody_else_has_locks, within=60)
    with interlock.connect(url_of(server, "?max_locks=3")) as locks:
        grants = [locks.lock(f"name {number}").acquire() for number in range(3)]
        with pytest.raises(StoreError, match="max_locks"):
            locks.lock("one more").acquire()
        grants.pop().release()
        assert locks.lock("one more").acquire(timeout=0) is not None


def test_a_full_lock_table_is_said_and_what_is_held_stays() -> None:
    need("postgres")
    small = {"max_connections": "10", "max_locks_per_transaction": "10"}
    with PostgresServer(config=small) as server, interlock.connect(url_of(server, "?max_locks=100000")) as locks:
        held = []
        with pytest.raises(StoreError, match="lock table"):
            for number in range(20_000):
                held += [locks.lock(f"name {number}", renew=False, ttl=600).acquire()]
        assert len(held) > 100
        assert all(grant.release() for grant in held[:50])
        assert locks.lock("after").acquire(timeout=5).release()
        assert held[-1].held


def test_semaphores_are_refused_with_the_store_that_has_them(locks: Any) -> None:
    with pytest.raises(InvalidArgument, match="postgresql://"):
        locks.semaphore("book", 3).acquire()
    assert locks.semaphore("book", 1).acquire(timeout=0) is not None


def test_what_another_process_holds_is_shown_and_can_not_be_evicted(locks: Any, other: Any) -> None:
    other.execute("SELECT pg_advisory_lock(%s)", [KEY])
    (view,) = locks.claims("book")
    assert (view.state, view.id) == ("using", f"session {other.info.backend_pid}")
    with pytest.raises(StoreError, match="pg_terminate_backend"):
        locks.evict("book")
    other.execute("SELECT pg_advisory_unlock(%s)", [KEY])


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_lends_its_sessions_is_refused(server: PostgresServer, mode: str) -> None:
    need("pgbouncer")
    with PgBouncer((server.host, server.port, server.user), config={"pool_mode": mode}) as pooler:
        with (
            interlock.connect(url_of(pooler)) as locks,
            pytest.raises(StoreError, match="pooler in transaction mode"),
        ):
            locks.lock("book").acquire()


def test_a_pooler_in_session_mode_is_used(server: PostgresServer, other: Any) -> None:
    need("pgbouncer")
    config = {"pool_mode": "session", "default_pool_size": "20"}
    with PgBouncer((server.host, server.port, server.user), config=config) as pooler:
        with interlock.connect(url_of(pooler)) as locks:
            with locks.lock("book") as grant:
                assert not other.execute("SELECT pg_try_advisory_lock(%s)", [KEY]).fetchone()[0]
                assert grant.renew()
            found = {(check.name, check.status) for check in locks.doctor()}
            assert {("session", "warn"), ("dead machine", "warn")} <= found


HOLDS = """
import sys, time, interlock
locks = interlock.connect(sys.argv[1])
grant = locks.lock("book", ttl=600).acquire()
print(grant.fence, flush=True)
time.sleep(60)
"""


def test_a_killed_process_frees_its_locks_at_once(server: PostgresServer, locks: Any) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, url_of(server)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    fence = int(holder.stdout.readline())
    assert locks.lock("book").acquire(blocking=False) is None
    holder.kill()
    grant = locks.lock("book").acquire(timeout=10)
    assert grant.fence > fence
    grant.release()
    holder.communicate()


def test_a_forked_child_ends_no_session_of_its_parent(locks: Any, other: Any) -> None:
    with locks.lock("book") as grant:
        before = sessions(other)
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if locks.lock("book").acquire(blocking=False) is None and locks.lock("mine").acquire() else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert grant.renew()
        assert set(before) <= set(sessions(other))


def test_fences_increase_over_a_crash_of_the_server(own_server: PostgresServer) -> None:
    fences = []
    with interlock.connect(url_of(own_server)) as locks:
        for _ in range(3):
            for _ in range(20):
                with locks.lock("book", timeout=20) as grant:
                    fences.append(grant.fence)
            own_server.kill()
            own_server.start()
            eventually(lambda: not grant.held)
    assert fences == sorted(set(fences))


def test_fences_increase_over_a_fail_over_that_lost_how_sessions_were_opened(own_server: PostgresServer) -> None:
    with interlock.connect(url_of(own_server)) as locks:
        locks.lock("book").acquire().release()
    with PostgresReplica(own_server) as replica, psycopg.connect(replica.url, autocommit=True) as there:
        there.execute("ALTER SYSTEM SET primary_conninfo = ''")
        there.execute("SELECT pg_reload_conf()")
        eventually(lambda: not there.execute("SELECT FROM pg_stat_wal_receiver").fetchall())
        for number in range(5):  # processes that are started in the moment before it
            with interlock.connect(url_of(own_server, f"?max_locks={number + 1}")) as locks:
                before = locks.lock("book").acquire()
        own_server.kill()
        replica.promote()
        with interlock.connect(url_of(replica)) as locks, locks.lock("book") as after:
            assert after.fence > before.fence


def test_a_role_that_may_not_make_the_sequence_is_told_what_to_do(own_server: PostgresServer) -> None:
    with psycopg.connect(own_server.url, autocommit=True) as owner:
        owner.execute("CREATE ROLE plain LOGIN")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM public")
        url = url_of(own_server).replace("postgres@", "plain@")
        with interlock.connect(url) as locks, pytest.raises(StoreError, match="CREATE SEQUENCE") as error:
            locks.lock("book").acquire()
        assert "GRANT USAGE, UPDATE" in str(error.value)
        owner.execute("CREATE SEQUENCE interlock_fence")
        owner.execute("GRANT USAGE, UPDATE ON SEQUENCE interlock_fence TO plain")
        with interlock.connect(url) as locks, locks.lock("book") as grant:
            assert grant.fence > 0
