"""A time limit of the server strikes a step of the ORM store: it was undone, and is taken again."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from store.test_connections import Site, ask, site  # noqa: F401

from interlock.django import locks
from interlock.testing.waiting import WAIT_LIMIT, eventually

POSTGRES = settings.DATABASE == "postgresql"
WAITS = (
    "SELECT pid, waitstart FROM pg_locks WHERE waitstart IS NOT NULL"
    if POSTGRES
    else "SELECT query_id, 0 FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
)


@pytest.fixture
def limit(databases: None) -> Iterator[None]:
    """A limit of 50 ms for statements of new sessions."""
    ask("SET statement_timeout = 0" if POSTGRES else "SET max_statement_time = 0")
    alter, every = "ALTER ROLE CURRENT_USER SET statement_timeout = '50ms'", "SET GLOBAL max_statement_time = 0.05"
    ask(alter if POSTGRES else every)
    yield
    ask("ALTER ROLE CURRENT_USER RESET statement_timeout" if POSTGRES else "SET GLOBAL max_statement_time = 0")
    connections["default"].close()


@pytest.mark.parametrize("step", ["enter", "leave", "renew"])
def test_a_step_that_a_limit_strikes_is_taken_again(limit: None, site: Site, step: str) -> None:  # noqa: F811
    site()
    lock: Any = locks.lock("a")
    grant = lock.acquire()
    if step == "enter":
        grant.release()
    calls = {"enter": lambda: lock.acquire(blocking=False), "leave": grant.release, "renew": grant.renew}
    seen: set[Any] = set()

    def struck_twice() -> bool:
        seen.update(ask(WAITS))
        return len(seen) >= 3

    with ThreadPoolExecutor(1) as pool:
        if POSTGRES:
            ask("BEGIN")
            ask("LOCK TABLE interlock_claim IN ACCESS EXCLUSIVE MODE")
        else:
            ask("LOCK TABLES interlock_claim WRITE")
        try:
            doing = pool.submit(calls[step])
            eventually(struck_twice)
        finally:
            ask("COMMIT" if POSTGRES else "UNLOCK TABLES")
        done = doing.result(WAIT_LIMIT)
    assert done
    if step == "enter":
        assert done.release() is True
    if step == "renew":
        assert grant.release() is True
    with lock:
        pass
