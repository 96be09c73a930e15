"""A server that has no connections left, and a process that has some."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pymysql
import pytest

import interlock
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.mysql.conftest import Ask

REFUSED = "SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections'"


@pytest.fixture
def watcher(outside: Callable[[], Any]) -> Iterator[Callable[[str], Any]]:
    """Ask by a session that is there before the server is full."""
    with outside() as connection, connection.cursor() as cursor:

        def asked(words: str) -> Any:
            cursor.execute(words)
            return cursor.fetchall()

        ((most,),) = asked("SELECT @@global.max_connections")
        asked("SET GLOBAL max_connections = 10")
        yield asked
        asked(f"SET GLOBAL max_connections = {most}")


def test_a_release_at_a_full_server_waits_for_a_connection_of_its_own_process(
    url: str, ask: Ask, outside: Callable[[], Any], watcher: Callable[[str], Any]
) -> None:
    """The only one is in use for longer than another one is waited for, and the server makes no other."""
    with interlock.connect(url) as locks, ExitStack() as others, ThreadPoolExecutor(2) as pool:
        free = locks.lock("free").acquire()
        locks.lock("stuck").acquire().release()
        table = url.rpartition("=")[2]
        blocker = others.enter_context(outside())
        blocker.begin()
        blocker.cursor().execute(f"SELECT * FROM {table} WHERE name = 'stuck' FOR UPDATE")
        taking = pool.submit(locks.lock("stuck").acquire, timeout=0)
        server = locks._session.store._server
        eventually(lambda: server._used() == 1)
        with pytest.raises(pymysql.OperationalError, match="Too many"):
            while True:
                others.enter_context(outside())
        before = int(watcher(REFUSED)[0][1])
        releasing = pool.submit(free.release)
        eventually(lambda: int(watcher(REFUSED)[0][1]) > before)
        blocker.rollback()
        assert releasing.result(WAIT_LIMIT) is True
        assert taking.result(WAIT_LIMIT).release() is True
        assert locks.claims("free") == []
