"""SQLite: one thread of a process at a time uses the file of the claims, and nobody waits for long for others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from django.test import override_settings

from interlock.django import locks
from interlock.django.pool import Pool
from interlock.django.wrappers import BUSY


@pytest.fixture(autouse=True)
def claims_apart() -> Iterator[None]:
    with override_settings(INTERLOCK={"default": {"ALIAS": "other"}}):
        yield


def test_who_waits_for_another_thread_waits_for_its_timeout_and_no_longer() -> None:
    pool: Pool = locks["default"].store.store.register.pool
    with ThreadPoolExecutor(1) as beside:
        with pool.connection():
            assert beside.submit(locks.lock("a").acquire, timeout=0.3).result(20) is None
            late = beside.submit(locks.lock("a").acquire, timeout=60)
        grant = late.result(20)
        assert grant is not None
        assert grant.release()


def test_a_signal_handler_does_not_wait_for_the_thread_that_it_has_interrupted() -> None:
    pool: Pool = locks["default"].store.store.register.pool
    with pool.connection(), locks.lock("a", timeout=5) as grant:
        assert grant.held


def test_a_file_that_is_busy_for_long_is_an_error_soon() -> None:
    assert connections.settings["other"]["OPTIONS"]["timeout"] > BUSY
    pool: Pool = locks["default"].store.store.register.pool
    with pool.connection() as connection, connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone() == (BUSY * 1000,)
