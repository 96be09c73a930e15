"""Settings of MariaDB, which must not change what a lock of GET_LOCK is."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymysql
import pytest

import interlock
from tests.servers import MariaServer, need

LEVELS = ["READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"]


def alternate(*connections: Any) -> None:
    """Let two threads of each connection add to a number that only a lock protects."""
    number = 0

    def add(locks: Any) -> None:
        nonlocal number
        for _ in range(10):
            with locks.lock("number", timeout=30):
                known = number
                locks.claims("number")
                number = known + 1

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(add, locks) for locks in connections * 2]:
            done.result(60)
    assert number == 20 * len(connections)


@pytest.mark.parametrize("level", LEVELS)
def test_defaults_of_the_server_change_nothing(level: str) -> None:
    """Its isolation level, that transactions only read and do not end by themselves, its dialect."""
    need("mariadb")
    with MariaServer() as server:
        settings = {"tx_isolation": f"'{level}'", "tx_read_only": "1", "sql_mode": "'ANSI'", "autocommit": "0"}
        with pymysql.connect(host=server.host, port=server.port, user=server.user) as other:
            for name, value in settings.items():
                other.cursor().execute(f"SET GLOBAL {name} = {value}")
        url = server.url.replace(":", "+advisory:", 1)
        with interlock.connect(url) as locks, interlock.connect(f"{url}?max_waiting=4") as others:
            alternate(locks, others)
