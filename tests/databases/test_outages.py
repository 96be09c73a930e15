"""Outages of a server of a database: the table of locks on each of them."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pymysql  # type: ignore[import-untyped]
import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.testing.waiting import eventually, moment, since
from tests.servers import PostgresServer
from tests.support.client_actors import SYNC_AND_ASYNC, side
from tests.support.databases import somebody_on, started


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of each kind."""
    yield from started(request.param)


@pytest.fixture
def url(server: Any) -> str:
    """The URL of a place without locks."""
    server.start()
    return f"{server.url}?create=true&grace=1&table=t{uuid4().hex}"


def processes_of(server: Any) -> list[int]:
    """Return the server and all its backends."""
    tasks = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [server.pid, *(int(each) for each in tasks)]


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to the processes of a server that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


@contextmanager
def paused(server: Any) -> Iterator[None]:
    """Stop a server and all its backends during the block."""
    pids = processes_of(server)
    signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


def test_ended_connections_are_replaced(server: Any, url: str) -> None:
    with interlock.connect(url) as locks, closing(somebody_on(server)) as other:
        grant = locks.lock("a").acquire()
        assert grant is not None
        for _ in range(4):
            sessions = other.sessions()
            assert sessions
            for session in sessions:
                other.kill(session)
            assert grant.renew()
            assert not grant.lost
        assert grant.release() is True
        assert locks.claims("a") == []


def test_a_paused_server_costs_one_time_out_and_leaves_nothing(server: Any, url: str) -> None:
    with interlock.connect(f"{url}&timeout=0.5", ttl=3) as locks:
        with locks.lock("a"):
            pass
        with paused(server):
            began = moment()
            with pytest.raises(StoreError):
                locks.lock("a").acquire(timeout=1)
            assert since(began) < 6
        eventually(lambda: locks.claims("a") == [], 40)  # a step in progress may hold it until its lease ends
        with locks.lock("a"):
            pass


def test_a_server_paused_past_the_lease_loses_the_lock(server: Any, url: str) -> None:
    with interlock.connect(f"{url}&timeout=0.3") as locks:
        grant = locks.lock("a", ttl=1).acquire()
        assert grant is not None
        with paused(server):
            eventually(lambda: grant.lost)
            with pytest.raises(interlock.LockLost):
                grant.check()


def test_a_server_that_restarts_is_waited_for(server: Any, url: str) -> None:
    with interlock.connect(url) as locks, ThreadPoolExecutor() as pool:
        grant = locks.lock("a").acquire()
        assert grant is not None
        waiting = pool.submit(locks.lock("a").acquire)
        eventually(lambda: len(locks.claims("a")) == 2)
        server.kill()
        time.sleep(0.5)
        server.start()
        grant.renew()
        assert not grant.lost
        grant.release()
        later = waiting.result(20)
        assert later is not None
        assert later.fence > grant.fence


def test_a_server_that_is_not_there_is_an_error_that_says_so(server: Any, url: str) -> None:
    server.stop()
    with interlock.connect(url) as locks, pytest.raises(StoreError, match="Cannot connect to"):
        locks.lock("a").acquire(timeout=0.5)


@contextmanager
def locked(server: Any, url: str, rows: bool) -> Iterator[None]:
    """Lock a whole table, or all its rows, in another session during the block."""
    table = url.rpartition("=")[2]
    if isinstance(server, PostgresServer):
        other: Any = psycopg.connect(server.url)
        words = "LOCK TABLE {} IN ACCESS EXCLUSIVE MODE"
    else:
        other = pymysql.connect(host=server.host, port=server.port, user=server.user, database=server.database)
        words = "LOCK TABLES {} WRITE"
    with closing(other):
        other.cursor().execute(f"SELECT * FROM {table} FOR UPDATE" if rows else words.format(table))
        yield


@pytest.mark.parametrize("rows", [False, True], ids=["table", "rows"])
@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_a_waiter_at_a_locked_table_keeps_its_time(server: Any, url: str, sync_or_async: str, rows: bool) -> None:
    """Its timeout, one I/O time-out for a look, and one for the withdrawal."""
    place = f"{server.url}?create=true&grace=1&timeout=1&table={url.rpartition('=')[2]}"
    with interlock.connect(url) as eye, side(sync_or_async, place) as one:
        holder = eye.lock("a").acquire()
        waiting = one.waits("a", timeout=2)
        eventually(lambda: len(eye.claims("a")) == 2)
        began = moment()
        with locked(server, url, rows):
            for result in (waiting, one.waits("a", timeout=2)):
                try:
                    assert result.result(20) is None
                except StoreError:
                    pass  # it could not be withdrawn in time
                assert since(began) < 4.5
                began = moment()
        eventually(lambda: [view.id for view in eye.claims("a")] == [holder.id], within=5)
        assert holder.release() is True
