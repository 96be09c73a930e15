"""Faults between a lock and MariaDB, each on a real server."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.core.line import RENEWAL_OK
from interlock.testing.waiting import eventually, lasting
from tests.mysql.conftest import Ask, table_of
from tests.servers import MariaServer, Proxy
from tests.support.concurrent_callers import nobody_waits_for_the_others

OURS = "SELECT ID, INFO FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID()"


def end_connections(ask: Ask) -> int:
    """Kill all connections but the one that asks; return how many there were."""
    found = ask(OURS)
    for id, _ in found:
        with suppress(pymysql.OperationalError):  # it ended by itself
            ask(f"KILL {id}")
    return len(found)


def test_a_step_killed_while_it_waits_for_a_row_is_done_once(url: str, ask: Ask, outside: Callable[[], Any]) -> None:
    with interlock.connect(url) as locks, interlock.connect(url) as others, ThreadPoolExecutor() as pool:
        lock = locks.lock("a")
        lock.acquire().release()
        with outside() as blocker:
            blocker.begin()
            blocker.cursor().execute(f"SELECT * FROM {table_of(url)} FOR UPDATE")
            acquiring = pool.submit(lock.acquire)
            waiting = lambda: [id for id, info in ask(OURS) if info and info.startswith("UPDATE")]  # noqa: E731
            ask(f"KILL {eventually(waiting)[0]}")
            blocker.rollback()
        grant = acquiring.result(20)
        assert [view.id for view in others.claims("a")] == [grant.id]
        assert grant.release() is True
        assert others.claims("a") == []


def test_a_locked_row_delays_only_the_renewal_of_its_own_lock(url: str, ask: Ask, outside: Callable[[], Any]) -> None:
    """One statement renews both locks, until it fails."""
    with interlock.connect(url) as locks:
        stuck, free = (locks.lock(name, ttl=6, renew=False).acquire() for name in ("stuck", "free"))
        (key,) = ask(f"SELECT k FROM {table_of(url)} WHERE name = 'stuck'")
        with outside() as blocker:
            blocker.begin()
            blocker.cursor().execute(f"SELECT * FROM {table_of(url)} WHERE k = %s FOR UPDATE", key)
            renewed = run_renewal(url, stuck, free)
            assert isinstance(renewed[0], StoreError)
            assert renewed[1] == RENEWAL_OK
        assert run_renewal(url, stuck, free) == [RENEWAL_OK, RENEWAL_OK]


def test_a_renewal_waits_for_no_row_of_other_locks(url: str, ask: Ask, outside: Callable[[], Any]) -> None:
    """The server scans a table of few rows, unless the statement forces the index."""
    with interlock.connect(url) as locks, outside() as blocker:
        locks.lock("stuck").acquire().release()
        free = [locks.lock(f"free{number}", ttl=6, renew=False).acquire() for number in range(3)]
        (key,) = ask(f"SELECT k FROM {table_of(url)} WHERE name = 'stuck'")
        blocker.begin()
        blocker.cursor().execute(f"SELECT * FROM {table_of(url)} WHERE k = %s FOR UPDATE", key)
        waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'"
        before = ask(waits)
        assert run_renewal(url, *free) == [RENEWAL_OK] * 3
        assert ask(waits) == before


def run_renewal(url: str, *grants: Any) -> list[Any]:
    from interlock.api.connect import open_store
    from interlock.core.claims import Claim, LockSpec

    with closing(open_store(url).queue()) as queue:
        return list(queue.renew([Claim(grant.id, LockSpec(f"\0{grant.name}", ttl=6)) for grant in grants]))


def test_a_server_with_too_many_connections_is_waited_for(url: str, ask: Ask, outside: Callable[[], Any]) -> None:
    most = ask("SELECT @@global.max_connections")[0][0]
    with interlock.connect(url) as locks, ThreadPoolExecutor() as pool:
        locks.lock("a").acquire().release()
        end_connections(ask)
        cursor = outside().cursor()
        cursor.execute("SET GLOBAL max_connections = 10")
        others = []
        try:
            with pytest.raises(Exception, match="Too many"):
                for _ in range(20):
                    others.append(outside())  # noqa: PERF401
            with lasting(0.0, 10.0):
                acquiring = pool.submit(locks.lock("a").acquire, timeout=20)
                refused = "SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections'"
                cursor.execute(refused)
                known = int(cursor.fetchone()[1])
                eventually(lambda: cursor.execute(refused) and int(cursor.fetchone()[1]) > known)
                others.pop().close()
                acquiring.result(20).release()
        finally:
            cursor.execute("SET GLOBAL max_connections = %s", (most,))
            for other in others:
                other.close()


def test_many_tasks_wait_for_a_silent_server_as_long_as_one(server: MariaServer, url: str) -> None:
    """The tasks share a few threads; the time that a task waits for a thread counts."""

    async def play() -> None:
        async with interlock.aconnect(f"{url}&timeout=2") as locks:
            await (await locks.lock("a").acquire()).release()
            server.pause()
            try:
                await nobody_waits_for_the_others(locks)
            finally:
                server.resume()

    asyncio.run(play())


def test_a_read_waits_for_a_slow_connection_until_its_time_out(server: MariaServer, url: str) -> None:
    with interlock.connect(url) as eye, Proxy(server.host, server.port) as proxy:
        grant = eye.lock("a").acquire()
        proxy.delay(0.25)  # a log-in has at least five replies
        with interlock.connect(f"{url.replace(f':{server.port}', f':{proxy.port}')}&timeout=2") as locks:
            with lasting(1.0, 1.5):
                assert [view.id for view in locks.claims("a")] == [grant.id]
