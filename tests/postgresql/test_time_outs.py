"""Time-outs of the role that cancel a step, and deadlocks with other sessions: the step is tried again."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import WAITING, Ask, number_of, table_of
from tests.servers import PostgresServer
from tests.support.client_actors import Side, side

SETTINGS = {
    "statement_timeout": "canceling statement due to statement timeout",
    "lock_timeout": "canceling statement due to lock timeout",
}
STEPS = ["enter", "leave", "renew", "look", "evict"]


def said(server: PostgresServer, words: str) -> int:
    """Return how often the server's log contains these words."""
    return server.log.read_text().count(words)


def step_of(ours: Side, step: str) -> Callable[[], Any]:
    """Return a function that takes a step of the lock "a", and returns a comparable form of its answer."""
    if step == "enter":
        return lambda: ours.waits("a", timeout=0)
    grant = ours.take("a")
    calls: dict[str, Callable[[], Any]] = {
        "leave": lambda: ours.start(grant.release),
        "renew": lambda: ours.start(grant.renew),
        "look": lambda: ours.start(ours.locks.claims, "a"),
        "evict": lambda: ours.start(ours.locks.evict, "a"),
    }
    return calls[step]


@pytest.fixture
def made(url: str) -> str:
    """The URL of a table that exists before the role gets its time-out."""
    with interlock.connect(url) as locks:
        locks.lock("a").acquire().release()
    return table_of(url)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_step_cancelled_by_a_time_out_of_the_role_is_retried(
    server: PostgresServer, url: str, made: str, role: Any, stranger: Any, sync_or_async: str, setting: str, step: str
) -> None:
    role(f"{setting} = '50ms'")
    with side(sync_or_async, url) as ours:
        begin = step_of(ours, step)
        other = stranger()
        other.execute(f"LOCK TABLE {made} IN ACCESS EXCLUSIVE MODE")
        before = said(server, SETTINGS[setting])
        doing = begin()
        eventually(lambda: said(server, SETTINGS[setting]) >= before + 2)
        other.rollback()
        assert doing.result(WAIT_LIMIT)
        held = len(ours.claims("a"))
        assert held == (0 if step in ("leave", "evict") else 1)
        if step == "enter":
            assert ours.do(doing.result().release) is True
            assert ours.claims("a") == []


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_waiter_outlasts_repeated_time_outs_of_the_role(
    server: PostgresServer, url: str, made: str, role: Any, stranger: Any, sync_or_async: str, setting: str
) -> None:
    role(f"{setting} = '50ms'")
    with side(sync_or_async, url) as ours:
        other = stranger()
        other.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("a"),))
        before = said(server, SETTINGS[setting])
        waiting = ours.waits("a")
        eventually(lambda: said(server, SETTINGS[setting]) >= before + 6)
        assert not waiting.done()
        other.rollback()
        assert ours.do(waiting.result(WAIT_LIMIT).release) is True


@pytest.mark.parametrize("step", ["enter", "leave", "evict"])
def test_a_step_that_is_the_victim_of_a_deadlock_is_taken_again(
    server: PostgresServer, url: str, made: str, role: Any, stranger: Any, ask: Ask, sync_or_async: str, step: str
) -> None:
    """Two other sessions lock the row.  The second waits for the step, which waits for the first and the second."""
    role("deadlock_timeout = '100ms'")
    with side(sync_or_async, url) as ours, side(sync_or_async, url) as next_one, ThreadPoolExecutor(1) as pool:
        begin = step_of(ours, step)
        if step != "enter":
            waiting = next_one.waits("a")
            eventually(lambda: len(ours.claims("a")) == 2)
        first, second = stranger(), stranger()
        for other in (first, second):
            other.execute("SET deadlock_timeout = '1h'")
            other.execute(f"SELECT 1 FROM {made} WHERE name = 'a' AND number = 0 FOR SHARE")
        before = said(server, "deadlock detected")
        doing = begin()
        eventually(lambda: ask(WAITING))
        crosses = pool.submit(second.execute, "SELECT pg_advisory_xact_lock(%s)", (number_of("a"),))
        stands = "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted"
        eventually(lambda: ask(stands, second.info.backend_pid))
        first.rollback()
        crosses.result(WAIT_LIMIT)
        assert said(server, "deadlock detected") == before + 1
        second.rollback()
        assert doing.result(WAIT_LIMIT)
        if step == "leave":
            assert next_one.do(waiting.result(WAIT_LIMIT).release) is True
        elif step == "enter":
            assert ours.do(doing.result().release) is True
        else:
            eventually(waiting.done)  # it was evicted too, and enters again
            assert next_one.do(waiting.result().release) is True
        assert ours.claims("a") == []
