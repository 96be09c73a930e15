"""An `AsyncEngine` of asyncpg: what its connections do where something goes wrong."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.postgresql import alistener
from interlock.testing.waiting import eventually, moment, since
from tests.engines.conftest import played
from tests.postgresql.test_faults import children, signal_all
from tests.servers import PgBouncer, PostgresServer, need

Ask = Callable[..., list[Any]]
OURS = "application_name = 'ours'"
ENDED = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}"


@pytest.fixture
def table() -> str:
    """A table that no other test uses."""
    return f"t{uuid4().hex}"


@asynccontextmanager
async def engine_of(url: str, table: str, **given: Any) -> AsyncIterator[AsyncEngine]:
    """An engine of asyncpg whose locks make their table themselves."""
    arguments = {"server_settings": {"application_name": "ours"}, **given}
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), connect_args=arguments)
    try:
        yield engine.execution_options(interlock_table=table, interlock_create=True)
    finally:
        await engine.dispose()


@pytest.fixture
def blocker(server: PostgresServer) -> Iterator[Any]:
    """Somebody who stops each step of the lock "a" until he rolls back."""
    with psycopg.connect(server.url) as connection:
        place = int.from_bytes(hashlib.sha256(b"\0a").digest()[:8], "big", signed=True)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (place,))
        yield connection


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is true, without keeping the loop."""
    await asyncio.to_thread(eventually, condition)


def test_psycopg_and_asyncpg_exclude_each_other(server: PostgresServer, table: str) -> None:
    async def play() -> None:
        async with engine_of(server.url, table) as engine, interlock.aconnect(engine) as ours:
            async with (
                interlock.aconnect(f"{server.url}?table={table}&create=true") as others,
                ours.lock("a") as grant,
            ):
                assert await others.lock("a").acquire(timeout=0) is None
                assert [view.id for view in await others.claims("a")] == [grant.id]

    played(play)


def test_terminated_backends_are_replaced(server: PostgresServer, table: str, ask: Ask) -> None:
    async def play() -> None:
        async with engine_of(server.url, table) as engine, interlock.aconnect(engine) as locks:
            grant = await locks.lock("a").acquire()
            for _ in range(3):
                assert await asyncio.to_thread(ask, ENDED)
                await grant.renew()
            await asyncio.to_thread(ask, ENDED)
            assert await grant.release() is True
            assert await locks.claims("a") == []

    played(play)


def test_a_waiter_whose_listener_was_terminated_looks_at_once(server: PostgresServer, table: str, ask: Ask) -> None:
    """asyncpg tells that the listener has ended; nothing else happens for five seconds."""

    async def play() -> None:
        async with engine_of(server.url, table) as engine, interlock.aconnect(engine) as locks:
            async with interlock.aconnect(f"{server.url}?table={table}&create=true") as others:
                grant = await others.lock("a").acquire()
                waiting = asyncio.ensure_future(locks.lock("a").acquire())
                while len(await others.claims("a")) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                listener = f"SELECT pid FROM pg_stat_activity WHERE {OURS} AND query LIKE 'LISTEN%%'"
                ((pid,),) = await asyncio.to_thread(ask, listener)
                await asyncio.to_thread(ask, "SELECT pg_terminate_backend(%s)", pid)
                await until(lambda: [one for (one,) in ask(listener)] not in ([pid], []))
                began = moment()
                await grant.release()
                second = await asyncio.wait_for(waiting, 20)
                assert since(began) < 1.5, "it was not told by the new listener"
                await second.release()

    played(play)


def test_a_deaf_listener_is_noticed(
    server: PostgresServer, table: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alistener, "SILENCE", 0.2)

    async def play() -> None:
        async with engine_of(server.url, table) as engine, interlock.aconnect(engine) as locks:
            async with interlock.aconnect(f"{server.url}?table={table}&create=true") as others:
                async with others.lock("a"):
                    waiting = asyncio.ensure_future(locks.lock("a").acquire())
                    while len(await others.claims("a")) < 2:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    listening = next(iter(locks.store._listener._listening.values()))
                    listening._io_timeout = 0.3
                    await listening.connection.connection.execute("UNLISTEN *")
                    while not listening.connection.ended:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                await (await asyncio.wait_for(waiting, 20)).release()

    played(play)


def test_a_step_that_gets_no_answer_is_an_error_in_time_and_leaves_no_task(
    server: PostgresServer, table: str, blocker: Any
) -> None:
    async def play() -> None:
        async with engine_of(server.url, table) as engine:
            async with interlock.aconnect(engine.execution_options(interlock_timeout=0.5)) as locks:
                await locks.lock("b").acquire()
                began = moment()
                with pytest.raises(StoreError, match="did not answer"):
                    await locks.lock("a").acquire(blocking=False)
                assert since(began) < 3, "one time-out for the step, one for what takes it back"
            await asyncio.sleep(0)
            assert [task for task in asyncio.all_tasks() if task.get_name() == "interlock-asks"] == []

    played(play)
    blocker.rollback()


def test_who_is_cancelled_in_the_middle_of_a_step_leaves_nothing(
    server: PostgresServer, table: str, ask: Ask, blocker: Any
) -> None:
    async def play() -> None:
        async with engine_of(server.url, table) as engine, interlock.aconnect(engine) as locks:
            taking = asyncio.ensure_future(locks.lock("a").acquire())
            await until(lambda: ask(f"SELECT pid FROM pg_stat_activity WHERE {OURS} AND wait_event = 'advisory'"))
            taking.cancel()
            await asyncio.sleep(0.05)
            assert not taking.done(), "what takes the claim out must come after the step"
            await asyncio.to_thread(blocker.rollback)
            with pytest.raises(asyncio.CancelledError):
                await taking
            assert await locks.claims("a") == []

    played(play)


def test_a_paused_server_loses_nothing(server: PostgresServer, table: str) -> None:
    async def play() -> None:
        async with engine_of(server.url, table) as engine:
            async with interlock.aconnect(engine.execution_options(interlock_timeout=0.5)) as locks:
                grant = await locks.lock("a").acquire()
                pids = children(server)
                signal_all(pids, "STOP")
                try:
                    with pytest.raises(StoreError):
                        await grant.renew()
                finally:
                    signal_all(pids, "CONT")
                assert await grant.release() is True

    played(play)


def test_a_hook_that_leaves_a_transaction_open_is_refused(server: PostgresServer, table: str) -> None:
    async def play() -> None:
        async with engine_of(server.url, table) as engine:

            @event.listens_for(engine.sync_engine, "connect")
            def hook(connection: Any, record: Any) -> None:
                connection.cursor().execute("SELECT 1")  # which begins one

            async with interlock.aconnect(engine) as locks:
                with pytest.raises(StoreError, match="in a transaction already"):
                    await locks.lock("a").acquire()

    played(play)


def test_a_wrong_password_or_database_is_told(server: PostgresServer, table: str) -> None:
    async def play() -> None:
        url = server.url.rpartition("/")[0] + "/nowhere"
        async with engine_of(url, table) as engine, interlock.aconnect(engine) as locks:
            with pytest.raises(StoreError, match="there is no such database"):
                await locks.lock("a").acquire()
        async with engine_of("postgresql://127.0.0.1:1/x", table) as engine, interlock.aconnect(engine) as locks:
            with pytest.raises(StoreError, match="can't be reached"):
                await locks.lock("a").acquire(timeout=1)

    played(play)


def test_behind_a_pooler_in_transaction_mode(server: PostgresServer, table: str, ask: Ask) -> None:
    need("pgbouncer")

    async def play(bouncer: PgBouncer) -> None:
        given = {"server_settings": {}, "statement_cache_size": 0}
        async with engine_of(bouncer.url, table, **given) as engine:
            async with interlock.aconnect(engine) as locks, interlock.aconnect(engine) as others:
                grant = await locks.lock("a").acquire()
                waiting = asyncio.ensure_future(others.lock("a").acquire())
                while len(await locks.claims("a")) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await grant.release()
                await (await asyncio.wait_for(waiting, 20)).release()
        assert await asyncio.to_thread(ask, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []

    with PgBouncer((server.host, server.port, server.user)) as bouncer:
        played(lambda: play(bouncer))


def test_without_prepared_statements_behind_a_pooler_the_error_says_what_to_do(
    server: PostgresServer, table: str, ask: Ask
) -> None:
    need("pgbouncer")

    async def play(bouncer: PgBouncer) -> None:
        async with engine_of(bouncer.url, table, server_settings={}) as engine:
            with pytest.raises(StoreError, match="statement_cache_size=0"):
                async with interlock.aconnect(engine) as locks, interlock.aconnect(engine) as others:
                    for _ in range(50):
                        crowd = [each.lock(f"{number}") for each in (locks, others) for number in range(8)]
                        grants = await asyncio.gather(*(lock.acquire(blocking=False) for lock in crowd))
                        await asyncio.gather(*(grant.release() for grant in grants if grant is not None))

    with PgBouncer((server.host, server.port, server.user)) as bouncer:
        played(lambda: play(bouncer))


def test_options_of_an_engine_are_checked(server: PostgresServer) -> None:
    engine = create_async_engine(server.url.replace("postgresql:", "postgresql+asyncpg:"))
    for name, value, words in (
        ("interlock_tabel", "x", "there are interlock_table"),
        ("interlock_table", 'x"y', "table"),
        ("interlock_create", "perhaps", "true or false"),
        ("interlock_timeout", 0, "above 0"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            interlock.aconnect(engine.execution_options(**{name: value}))
    with pytest.raises(InvalidArgument, match="Engine"):
        interlock.connect(engine)
