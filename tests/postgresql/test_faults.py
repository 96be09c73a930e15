"""Faults between a lock and PostgreSQL, each on a real server."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.testing.waiting import eventually
from tests.databases.test_outages import processes_of, signal_all
from tests.postgresql.conftest import Ask, number_of
from tests.servers import PostgresReplica, PostgresServer
from tests.support.client_actors import side
from tests.support.crashes import Load, crashes

OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = %s"
)


def end_backends(ask: Ask) -> int:
    """Terminate all connections of locks; return how many there were."""
    return len(ask(OTHERS, "interlock"))


def test_a_backend_terminated_in_a_step_leaves_nothing(locks: Any, ask: Ask, url: str) -> None:
    """The backend ends while the step waits for the name's lock: the step is sent again, and makes one claim."""
    lock = locks.lock("a")
    lock.acquire().release()
    with ThreadPoolExecutor() as pool, interlock.connect(url) as others:
        with psycopg.connect(url.partition("?")[0]) as blocker:
            blocker.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("a"),))
            acquiring = pool.submit(lock.acquire)
            waits = (
                "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory' AND application_name = 'interlock'"
            )
            ask("SELECT pg_terminate_backend(%s)", eventually(lambda: ask(waits))[0][0])
        grant = acquiring.result(20)
        assert [view.id for view in others.claims("a")] == [grant.id]
        assert grant.release() is True
        assert others.claims("a") == []


def test_a_waiter_wakes_after_its_listener_was_terminated(url: str, ask: Ask, sync_or_async: str) -> None:
    with side(sync_or_async, url) as ours, side(sync_or_async, url) as others:
        for _ in range(3):
            grant = ours.take("a")
            waiting = others.waits("a")
            eventually(lambda: len(ours.claims("a")) == 2)
            end_backends(ask)
            ours.do(grant.release)
            assert others.do(waiting.result(20).release) is True


@pytest.mark.timeout(1800)
def test_a_killed_server_never_has_two_holders_or_equal_fences(server: PostgresServer, url: str) -> None:
    quick = f"{url}&grace=1"  # of both, as one of them makes the table
    with interlock.connect(quick) as one, interlock.connect(quick) as two:
        Load(ttl=1, longest=0.6).survive([one, two], partial(restart, server), crashes(3))


@pytest.mark.parametrize("crash", ["server", "backend"])
def test_after_a_crash_no_grant_precedes_the_forgotten_leases(
    server: PostgresServer, url: str, ask: Ask, crash: str
) -> None:
    """The holder's claim is lost, as if its commit had not reached the disk."""
    table = url.rpartition("=")[2]
    with interlock.connect(f"{url}&grace=1") as locks, interlock.connect(url) as others:
        first = locks.lock("a", ttl=1).acquire()
        before = _started(ask)
        if crash == "server":
            restart(server)
        else:
            os.kill(
                ask(f"SELECT pid FROM pg_stat_activity WHERE query LIKE '%%{table}_enter%%'")[0][0], signal.SIGKILL
            )
        eventually(lambda: _started(ask) not in (before, None), 20)  # it answers until it has noticed
        crashed = time.monotonic()
        ask(f"DELETE FROM {table}")
        assert others.lock("a").acquire(timeout=0) is None
        checks = {check.name: check.status for check in others.doctor()}
        assert (checks["grace"], checks["round trip"], "fail" in checks.values()) == ("warn", "warn", False)
        second = others.lock("a").acquire(timeout=20)
        assert time.monotonic() > crashed + 0.9
        assert second.fence > first.fence
        second.release()
        assert others.lock("b").acquire(timeout=0).release() is True


def test_a_properly_stopped_server_has_forgotten_nothing(server: PostgresServer, url: str) -> None:
    with interlock.connect(url) as locks:
        locks.lock("a").acquire().release()
        server.stop()
        server.start()
        assert locks.lock("b").acquire(timeout=0).release() is True


def test_a_replica_is_refused_and_has_a_grace_when_it_takes_over(server: PostgresServer, url: str) -> None:
    """Claims that were not replicated are lost, as after a crash."""
    with interlock.connect(f"{url}&grace=1") as locks:
        first = locks.lock("a", ttl=1).acquire()
        with PostgresReplica(server) as replica:
            where = f"{replica.url}?{url.partition('?')[2]}"
            with interlock.connect(where) as others:
                with pytest.raises(StoreError, match="Connect to the primary"):
                    others.lock("b").acquire(timeout=0.5)
                server.kill()
                replica.promote()
                assert others.lock("b").acquire(timeout=0) is None
                second = others.lock("a").acquire(timeout=20)
                assert second.fence > first.fence
                second.release()


def _started(ask: Ask) -> Any:
    """Return when the server started, or restarted after a backend's crash; None while it does not answer."""
    try:
        return ask("SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer'")[0][0]
    except (psycopg.OperationalError, IndexError):
        return None


def restart(server: PostgresServer) -> None:
    """Kill the server and all its backends at once, and start it again."""
    server.pause()  # it makes no further backend: one that is left would keep the next server from starting
    pids = processes_of(server)
    signal_all(pids, signal.SIGKILL)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids[1:]))
    server.restart()
