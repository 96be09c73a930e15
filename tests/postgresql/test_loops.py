"""Tasks on PostgreSQL: loops that end in the middle of something, and who waits for a connection."""

import asyncio
import gc
import socket
from typing import Any

import psycopg
import pytest

import interlock
from interlock.stores.sql.statements import Statement
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import WAITING, Ask, number_of
from tests.servers import PostgresServer, Proxy

ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30%%'"


async def _pair(locks: Any) -> None:
    await (await locks.lock("b").acquire()).release()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_in_the_middle_of_a_step_troubles_no_other(
    server: PostgresServer, url: str, ask: Ask
) -> None:
    locks = interlock.aconnect(url)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_pair(locks))
    with psycopg.connect(server.url) as blocker:
        blocker.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("a"),))

        async def stuck() -> Any:
            task = asyncio.ensure_future(locks.lock("a").acquire())
            await asyncio.to_thread(eventually, lambda: ask(WAITING))
            return task

        task = loop.run_until_complete(stuck())
        task._log_destroy_pending = False
        loop.close()
        asyncio.run(_pair(locks))
        blocker.rollback()
    del task
    asyncio.run(locks.close())
    gc.collect()  # what is litter here is not to be another test's


def test_who_waits_while_it_is_closed_is_told_so_also_before_anybody_listens(
    server: PostgresServer, url: str
) -> None:
    async def play(proxy: Proxy) -> None:
        locks = interlock.aconnect(f"{url}&timeout=15".replace(f":{server.port}", f":{proxy.port}"))
        async with interlock.aconnect(url) as others, others.lock("a"):
            await _pair(locks)
            proxy.forget_new()
            waiting = asyncio.ensure_future(locks.lock("a").acquire())
            opening = locks._session.store._listener._opening  # type: ignore[attr-defined]
            while not opening.underway():  # noqa: ASYNC110
                await asyncio.sleep(0)
            await locks.close()
            with pytest.raises(interlock.StoreError, match="closed"):
                await waiting

    with Proxy(server.host, server.port) as proxy:
        asyncio.run(play(proxy))


def test_a_renewal_is_not_woken_for_nothing_by_who_may_not_have_the_connection(url: str, ask: Ask) -> None:
    """One connection for all, one more for renewals; a step is first in line for one that it may not have."""

    async def play() -> None:
        async with interlock.aconnect(f"{url}&max_connections=1&timeout={2 * WAIT_LIMIT:.0f}") as locks:
            await _pair(locks)
            pool: Any = locks._session.store._server  # type: ignore[attr-defined]

            async def asks(seconds: float, reserved: bool) -> asyncio.Task[Any]:
                statement = Statement(f"SELECT pg_sleep({seconds})", (), None, reserved)
                task = asyncio.ensure_future(pool.aask(statement))
                await asyncio.sleep(0.1)
                return task

            slow = await asks(1.5 * WAIT_LIMIT, False)
            others = [await asks(1, True), await asks(0, False), await asks(0, True)]
            async with asyncio.timeout(WAIT_LIMIT):
                await others[0]
                await others[2]
            assert not others[1].done()
            await asyncio.to_thread(ask, ENDED)
            with pytest.raises(interlock.StoreError):
                await slow
            await others[1]

    asyncio.run(play())


def test_a_connection_that_nobody_waits_for_any_more_fails_in_silence() -> None:
    told: list[Any] = []

    async def play(port: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        async with interlock.aconnect(f"postgresql://u@127.0.0.1:{port}/d?timeout=0.5") as locks:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(locks.lock("a").acquire(), 0.1)
            while [task for task in asyncio.all_tasks() if task.get_name() == "interlock-connects"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(play(silent.getsockname()[1]))
    assert told == []
