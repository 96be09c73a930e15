"""A lock of the caller's own transaction ends with its commit or rollback, and never before."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, create_engine, event, insert, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import interlock
from interlock import InvalidArgument, LockTimeout, NotHeld, StoreError
from interlock.sql import fenced
from interlock.testing.waiting import eventually
from tests.servers import PostgresServer, need


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for all tests of this module."""
    need("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def locks(server: PostgresServer) -> Iterator[Any]:
    """Locks of sessions on the same server."""
    with interlock.connect(server.url.replace(":", "+advisory:", 1)) as locks:
        yield locks


@pytest.fixture
def engine(server: PostgresServer) -> Iterator[Engine]:
    """An engine with one connection, whose state shows in the next use."""
    engine = create_engine(server.url.replace(":", "+psycopg:", 1), pool_size=1, max_overflow=3)
    yield engine
    engine.dispose()


def free(locks: Any, name: str = "book") -> bool:
    """Return True if a session can take the lock."""
    grant = locks.lock(name).acquire(blocking=False)
    return grant is not None and grant.release()


@pytest.mark.parametrize("how", ["commit", "rollback"])
@pytest.mark.parametrize("by", ["connection", "session"])
def test_the_end_of_the_transaction_releases_it_and_nothing_before(
    locks: Any, engine: Engine, how: str, by: str
) -> None:
    with engine.connect() if by == "connection" else Session(engine) as connection:
        with locks.lock("book", connection=connection) as grant:
            assert grant.held
            assert not free(locks)
        assert grant.held  # the end of the body is not the end of the transaction
        assert not free(locks)
        with pytest.raises(NotHeld, match="commit or rollback"):
            locks.lock("book", connection=connection).release()
        assert not free(locks)
        getattr(connection, how)()
        assert not grant.held
        with pytest.raises(NotHeld, match="ended with its transaction"):
            grant.check()
    assert free(locks)


def test_fences_increase_over_transactions_and_sessions(locks: Any, engine: Engine) -> None:
    fences = []
    for _ in range(3):
        with locks.lock("book") as grant:
            fences.append(grant.fence)
        with engine.begin() as connection, locks.lock("book", connection=connection) as grant:
            fences.append(grant.fence)
    assert fences == sorted(set(fences))


def test_a_try_and_a_time_out_leave_the_transaction_as_it_was(locks: Any, engine: Engine) -> None:
    held = locks.lock("book").acquire()
    with engine.connect() as connection:
        connection.execute(text("CREATE TEMP TABLE mine (id int)"))
        connection.execute(text("SET LOCAL lock_timeout = '1234ms'"))
        lock = locks.lock("book", connection=connection)
        assert lock.acquire(blocking=False) is None
        assert lock.acquire(timeout=0.1) is None
        with pytest.raises(LockTimeout, match="goes on without it"):
            locks.lock("book", connection=connection, timeout=0.05).__enter__()
        connection.execute(text("INSERT INTO mine VALUES (1)"))
        assert connection.execute(text("SHOW lock_timeout")).scalar() == "1234ms"
        held.release()
        assert lock.acquire(timeout=5) is not None
        connection.commit()
        assert connection.execute(text("SELECT count(*) FROM mine")).scalar() == 1
        assert connection.execute(text("SHOW lock_timeout")).scalar() == "0"


class OfPsycopg2(Exception):
    """An error like psycopg2's, whose SQLSTATE has another attribute name."""

    pgcode = "55P03"


def test_a_time_out_is_known_whatever_the_driver_calls_it(locks: Any, engine: Engine) -> None:
    @event.listens_for(engine, "handle_error")
    def as_of_psycopg2(context: Any) -> None:
        assert context.original_exception.sqlstate == OfPsycopg2.pgcode
        raise OperationalError("", None, OfPsycopg2())

    held = locks.lock("book").acquire()
    with engine.connect() as connection:
        assert locks.lock("book", connection=connection).acquire(timeout=0.05) is None
        with pytest.raises(LockTimeout, match="goes on without it"):
            locks.lock("book", connection=connection, timeout=0.05).__enter__()
        held.release()
        assert locks.lock("book", connection=connection).acquire(blocking=False) is not None


@pytest.mark.parametrize("timeout", [30 * 86400, 1e300])
def test_a_time_out_may_be_longer_than_the_server_can_wait(locks: Any, engine: Engine, timeout: float) -> None:
    def waits() -> None:
        with engine.begin() as connection:
            assert locks.lock("book", connection=connection).acquire(timeout=timeout)

    held = locks.lock("book").acquire()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(waits)
        eventually(lambda: [view for view in locks.claims("book") if view.state == "pending"] or waiting.done())
        held.release()
        waiting.result(20)


def test_a_waiter_gets_it_at_the_commit(locks: Any, engine: Engine) -> None:
    got = []

    def waits() -> None:
        with engine.begin() as other, locks.lock("book", connection=other) as grant:
            got.append(grant.fence)
            got.append(other.execute(text("SHOW lock_timeout")).scalar())

    with engine.begin() as connection, locks.lock("book", connection=connection) as grant:
        fence = grant.fence
        thread = threading.Thread(target=waits)
        thread.start()
        eventually(lambda: [view for view in locks.claims("book") if view.state == "pending"])
        assert not got
    thread.join(20)
    assert got[0] > fence
    assert got[1] == "0"


def test_a_rollback_to_a_savepoint_releases_what_was_taken_in_it(locks: Any, engine: Engine) -> None:
    with engine.begin() as connection:
        locks.lock("outer", connection=connection).acquire()
        savepoint = connection.begin_nested()
        grant = locks.lock("inner", connection=connection).acquire()
        savepoint.rollback()
        assert not grant.held
        assert free(locks, "inner")
        assert not free(locks, "outer")


def test_a_deadlock_is_an_error_and_leaves_nothing(locks: Any, engine: Engine) -> None:
    both = threading.Barrier(2)
    ends: list[str] = []

    def crosses(first: str, second: str) -> None:
        try:
            with engine.begin() as connection:
                locks.lock(first, connection=connection).acquire()
                both.wait(10)
                locks.lock(second, connection=connection).acquire()
            ends.append("done")
        except StoreError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=crosses, args=names) for names in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted("deadlock" in end for end in ends) == [False, True]
    assert free(locks, "a")
    assert free(locks, "b")


def test_a_fenced_write_by_a_lock_of_the_transaction(locks: Any, engine: Engine) -> None:
    books = Table("book", MetaData(), Column("id", Integer, primary_key=True), Column("fence", BigInteger))
    books.metadata.create_all(engine)
    with engine.begin() as connection, locks.lock("book", connection=connection) as grant:
        connection.execute(insert(books), {"id": 1})
        assert fenced(books, grant).write(connection, books.c.id == 1) == 1


def test_what_can_not_hold_it_is_refused(locks: Any, engine: Engine, server: PostgresServer) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(InvalidArgument, match="commits each statement"):
            locks.lock("book", connection=connection).acquire()
    with create_engine("sqlite://").connect() as other, pytest.raises(InvalidArgument, match="sqlite has no locks"):
        locks.lock("book", connection=other).acquire()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE DATABASE elsewhere"))
    url = server.url.replace(":", "+psycopg:", 1).rpartition("/")[0] + "/elsewhere"
    elsewhere = create_engine(url)
    with elsewhere.connect() as other, pytest.raises(InvalidArgument, match="another server or database"):
        locks.lock("book", connection=other).acquire()
    elsewhere.dispose()
    with pytest.raises(InvalidArgument, match="no lease"):
        locks.lock("book", connection=engine, ttl=5)
    with pytest.raises(InvalidArgument, match="not Engine"):
        locks.lock("book", connection=engine)
    with interlock.connect("memory://") as memory, pytest.raises(InvalidArgument, match="postgresql"):
        memory.lock("book", connection=engine)


def test_asyncio(locks: Any, server: PostgresServer) -> None:
    async def story() -> list[object]:
        engine = create_async_engine(server.url.replace(":", "+psycopg:", 1))
        said: list[object] = []
        async with interlock.aconnect(server.url.replace(":", "+advisory:", 1)) as alocks:
            async with AsyncSession(engine) as session:
                async with alocks.lock("book", connection=session) as grant:
                    said.append(grant.held)
                said.append(await alocks.lock("book").acquire(blocking=False))
                async with engine.connect() as other:
                    said.append(await alocks.lock("book", connection=other).acquire(timeout=0.05))
                await session.commit()
            async with alocks.lock("book", timeout=0) as after:
                said.append(after.fence > grant.fence)
        await engine.dispose()
        return said

    assert asyncio.run(story()) == [True, None, None, True]
