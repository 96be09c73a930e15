"""Steps that get no answer, or are cancelled: their changes are undone, and their claims end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import interlock
from interlock.testing.waiting import WAIT_LIMIT, eventually, lasting
from tests.postgresql.conftest import WAITING, Ask, number_of
from tests.servers import PostgresServer
from tests.support.client_actors import side


@pytest.fixture
def blocker(server: PostgresServer) -> Iterator[Any]:
    """A connection whose transaction blocks each step of the lock "a" until it is rolled back."""
    with psycopg.connect(server.url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("a"),))
        yield connection


def test_a_task_cancelled_in_a_step_ends_at_once_without_claim(url: str, ask: Ask, locks: Any, blocker: Any) -> None:
    locks.lock("b").acquire().release()

    async def main() -> None:
        async with interlock.aconnect(f"{url}&timeout=1") as ours:
            waits = asyncio.ensure_future(ours.lock("a").acquire())
            await asyncio.to_thread(eventually, lambda: ask(WAITING))
            waits.cancel()
            await asyncio.wait([waits], timeout=WAIT_LIMIT)
            assert waits.cancelled()

    asyncio.run(main())
    blocker.rollback()
    eventually(lambda: not ask(WAITING) and not locks.claims("a"))


def test_what_gets_no_answer_is_undone_when_it_is_performed_late(
    url: str, ask: Ask, locks: Any, blocker: Any, sync_or_async: str
) -> None:
    locks.lock("b").acquire().release()
    with side(sync_or_async, f"{url}&timeout=1") as ours:
        with lasting(0.0, 4.0), pytest.raises(interlock.StoreError):
            ours.take("a", timeout=0)
        blocker.rollback()
        eventually(lambda: not ask(WAITING) and not locks.claims("a"))
        assert ours.do(ours.take("a", timeout=0).release) is True


@pytest.mark.parametrize("setting", ["", "default_transaction_isolation = 'serializable'"])
def test_a_client_stopped_at_any_moment_holds_at_most_its_lease(
    url: str, locks: Any, role: Callable[[str], None], setting: str
) -> None:
    code = (
        f"import interlock\nlocks = interlock.connect({url!r})\nprint('begun', flush=True)\n"
        "while True:\n    with locks.lock('a', ttl=1): pass"
    )
    locks.lock("b").acquire().release()
    if setting:
        role(setting)
    for tries in range(4):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            client.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                client.wait(0.4 + 0.013 * tries)
            os.kill(client.pid, signal.SIGSTOP)
            try:
                assert locks.lock("a").acquire(timeout=WAIT_LIMIT).release() is True
            finally:
                client.kill()
