"""The connections of a process: what becomes of a step that is cancelled, fails, or finds all of them in use."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import interlock
from interlock.core.errors import UnknownOutcome
from interlock.stores.postgresql import listener
from interlock.stores.postgresql.aconnection import AsyncConnection
from interlock.stores.sql.statements import Statement
from interlock.testing.waiting import WAIT_LIMIT, eventually, moment, since
from tests.postgresql.conftest import WAITING, Ask, number_of
from tests.servers import PostgresServer


@pytest.fixture
def blocker(server: PostgresServer) -> Iterator[Any]:
    """Somebody who stops each step of the lock "a" until he rolls back."""
    with psycopg.connect(server.url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("a"),))
        yield connection


def test_who_is_cancelled_while_a_step_fails_is_cancelled(url: str, ask: Ask, locks: Any, blocker: Any) -> None:
    async def main() -> None:
        async with interlock.aconnect(f"{url}&timeout=1") as ours:
            waits = asyncio.ensure_future(ours.lock("a").acquire())
            await asyncio.to_thread(eventually, lambda: ask(WAITING))
            waits.cancel()
            await asyncio.wait([waits], timeout=WAIT_LIMIT)  # its step gets no answer
            assert waits.cancelled()

    asyncio.run(main())
    blocker.rollback()
    eventually(lambda: not locks.claims("a"))


def test_what_gets_no_answer_is_not_asked_a_third_time(url: str, ask: Ask, blocker: Any) -> None:
    with interlock.connect(f"{url}&timeout=2") as locks:
        began = moment()
        with pytest.raises(interlock.StoreError):
            locks.lock("a").acquire(blocking=False)
        assert since(began) < 5.5, "one time-out for the step, one for what takes it back"


def test_renewals_have_a_connection_where_all_others_are_in_use(url: str, ask: Ask, blocker: Any) -> None:
    lost: list[Any] = []
    with interlock.connect(f"{url}&max_connections=2") as locks, ThreadPoolExecutor(4) as threads:
        free = locks.lock("free", ttl=30, on_lost=lost.append).acquire()
        assert free is not None
        stuck = [threads.submit(locks.lock("a").acquire, timeout=0) for _ in range(4)]
        eventually(lambda: len(ask(WAITING)) == 2)
        before = free.expires_in
        eventually(lambda: free.expires_in < before - 0.3)
        began = moment()
        assert free.renew()
        assert since(began) < 2, "it does not wait for the others"
        assert free.expires_in > before - 0.3
        blocker.rollback()
        for each in stuck:
            each.exception(WAIT_LIMIT)


@pytest.mark.parametrize("colour", ["threads", "tasks"])
def test_a_step_that_was_refused_in_a_transaction_leaves_none_open(
    server: PostgresServer, url: str, ask: Ask, colour: str
) -> None:
    """The table is made by one process at a time; a role's lock_timeout ends the wait for that."""
    ask("ALTER ROLE postgres SET lock_timeout = '50ms'")
    try:
        with psycopg.connect(server.url) as maker:
            maker.execute("SELECT pg_advisory_xact_lock(7308896216438961)")
            if colour == "threads":
                _refused_then_right(url, maker)
            else:
                asyncio.run(_refused_then_right_for_tasks(url, maker))
    finally:
        ask("ALTER ROLE postgres RESET lock_timeout")


def _refused_then_right(url: str, maker: Any) -> None:
    with interlock.connect(url) as locks:
        with pytest.raises(interlock.StoreError):
            locks.lock("a").acquire(blocking=False)
        maker.rollback()
        grant = locks.lock("a").acquire(blocking=False)
        assert grant is not None
        grant.release()


async def _refused_then_right_for_tasks(url: str, maker: Any) -> None:
    async with interlock.aconnect(url) as locks:
        with pytest.raises(interlock.StoreError):
            await locks.lock("a").acquire(blocking=False)
        maker.rollback()
        grant = await locks.lock("a").acquire(blocking=False)
        assert grant is not None
        await grant.release()


@pytest.mark.parametrize("by", ["us", "the server", "the server, while we ask"])
def test_a_connection_that_has_ended_is_not_closed_twice(server: PostgresServer, ask: Ask, by: str) -> None:
    """The number of its descriptor is somebody else's by then, whom the loop would not hear any more."""

    async def main() -> None:
        heard = asyncio.Event()
        connection = AsyncConnection(await psycopg.AsyncConnection.connect(server.url), server.url)
        number = connection._fd
        await _end(connection, ask, by)
        with pytest.raises(OSError):
            os.fstat(number)
        pair = socket.socketpair()
        ours, theirs = pair if pair[1].fileno() != number else pair[::-1]
        if ours.fileno() != number:
            os.dup2(ours.fileno(), number)
            ours.close()
            ours = socket.socket(fileno=number)
        with ours, theirs:
            connection.loop.add_reader(number, heard.set)
            connection.close()
            theirs.send(b"x")
            async with asyncio.timeout(WAIT_LIMIT):
                await heard.wait()
            connection.loop.remove_reader(number)

    asyncio.run(main())


async def _end(connection: AsyncConnection, ask: Ask, by: str) -> None:
    """Let a connection end; libpq gives its descriptor back where the server has ended it."""
    if by == "us":
        connection.close()
        return
    if by == "the server, while we ask":
        asking = asyncio.ensure_future(
            connection.exchange(Statement("SELECT pg_sleep(60)"), moment() + WAIT_LIMIT, WAIT_LIMIT)
        )
        await asyncio.sleep(0)
    await asyncio.to_thread(ask, "SELECT pg_terminate_backend(%s)", connection.pgconn.backend_pid)
    async with asyncio.timeout(WAIT_LIMIT):
        while not connection.ended:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    if by == "the server, while we ask":
        with pytest.raises(interlock.StoreError):
            await asking


LONG = Statement("SELECT length($1::text)", ("x" * 30_000_000,))  # far more than a socket takes at once


def test_a_statement_that_no_socket_takes_at_once_goes_out_all_the_same(server: PostgresServer) -> None:
    async def main() -> None:
        connection = AsyncConnection(await psycopg.AsyncConnection.connect(server.url), server.url)
        try:
            assert await connection.exchange(LONG, moment() + WAIT_LIMIT, WAIT_LIMIT) == [("30000000",)]
        finally:
            connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_statement_that_the_server_does_not_take_has_a_deadline(server: PostgresServer, cancelled: bool) -> None:
    async def main() -> None:
        connection = AsyncConnection(await psycopg.AsyncConnection.connect(server.url), server.url)
        backend = connection.pgconn.backend_pid
        os.kill(backend, signal.SIGSTOP)
        try:
            asking = asyncio.ensure_future(connection.exchange(LONG, moment() + 0.5, 0.5))
            await asyncio.sleep(0)
            if cancelled:
                asking.cancel()
            async with asyncio.timeout(WAIT_LIMIT):
                with pytest.raises(UnknownOutcome):
                    await asking
            assert (connection.cancelled is not None) == cancelled
        finally:
            os.kill(backend, signal.SIGCONT)
            connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("where", ["__init__", "start"])
def test_an_interrupt_while_it_begins_to_listen_makes_nobody_deaf(
    url: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(listener, "RETRY", 0.0)
    with interlock.connect(url) as holds, interlock.connect(url) as locks, ThreadPoolExecutor(1) as threads:
        ours = locks._session.store._listener  # type: ignore[attr-defined]
        grant = holds.lock("a").acquire()
        assert grant is not None
        with monkeypatch.context() as patch:
            _interrupted(patch, where)
            with pytest.raises(KeyboardInterrupt):
                threads.submit(locks.lock("a").acquire).result(WAIT_LIMIT)
        assert not ours.live
        waiting = threads.submit(locks.lock("a").acquire)
        eventually(lambda: ours.live)
        assert [each.name for each in threading.enumerate()].count("interlock-listens") == 1
        grant.release()
        got = waiting.result(WAIT_LIMIT)
        assert got is not None
        got.release()


def _interrupted(patch: pytest.MonkeyPatch, where: str) -> None:
    """Let what makes or starts the thread that listens be interrupted at its entry."""
    real = getattr(threading.Thread, where)

    def strikes(thread: threading.Thread, *args: Any, **how: Any) -> None:
        if "interlock-listens" in (how.get("name"), getattr(thread, "_name", None)):
            raise KeyboardInterrupt
        real(thread, *args, **how)

    patch.setattr(threading.Thread, where, strikes)


@pytest.mark.parametrize("text", ["{id} " + "7" * 20, "{id} " + "7" * 5000, "{id} x", "{id}", ""])
def test_a_message_that_is_not_ours_tells_nobody_anything(locks: Any, ask: Ask, text: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        grant = locks.lock("a").acquire()
        waiting = threads.submit(locks.lock("a").acquire)
        store = locks._session.store
        eventually(lambda: len(locks.claims("a")) == 2 and store._listener.live)
        id = next(view.id for view in locks.claims("a") if view.state == "pending")
        ask("SELECT pg_notify(%s, %s)", store._channel, text.format(id=id))
        heard = threading.Event()
        store._waiters.notify_message = lambda message: (
            heard.set(),
            type(store._waiters).notify_message(store._waiters, message),
        )
        ask("SELECT pg_notify(%s, 'ping')", store._channel)
        assert heard.wait(WAIT_LIMIT)
        assert store._listener.live
        assert not waiting.done()
        grant.release()
        waiting.result(WAIT_LIMIT).release()
