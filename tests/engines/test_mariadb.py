"""PyMySQL connects with the arguments of an `AsyncEngine` of aiomysql or asyncmy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from tests.engines.conftest import played
from tests.servers import MariaServer

DRIVERS = ["aiomysql", "asyncmy"]


@asynccontextmanager
async def engine_of(server: MariaServer, driver: str, **given: Any) -> AsyncIterator[AsyncEngine]:
    """An engine whose locks create their table themselves."""
    engine = create_async_engine(server.url.replace("mysql:", f"mysql+{driver}:"), **given)
    try:
        yield engine.execution_options(interlock_table=f"t{uuid4().hex}", interlock_create=True)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("driver", DRIVERS)
def test_tasks_take_turns_and_the_engine_stays_the_programs(mariadb: MariaServer, driver: str) -> None:
    async def play() -> None:
        async with engine_of(mariadb, driver, pool_size=1, max_overflow=0) as engine:
            async with engine.connect() as connection:  # its pool is used up
                async with interlock.aconnect(engine) as locks, interlock.aconnect(engine) as others:
                    grant = await locks.lock("a").acquire()
                    assert await others.lock("a").acquire(timeout=0) is None
                    assert await grant.release() is True
                    async with others.lock("a") as second:
                        assert second.fence > grant.fence
                assert (await connection.execute(text("SELECT 1"))).scalar() == 1

    played(play)


@pytest.mark.parametrize("driver", DRIVERS)
def test_arguments_of_the_engine_count_as_its_hooks_leave_them(mariadb: MariaServer, driver: str) -> None:
    async def play() -> None:
        given = {"connect_timeout": 3, "program_name": "theirs"}
        async with engine_of(mariadb, driver, connect_args=given, isolation_level="READ COMMITTED") as engine:
            seen: list[Any] = []

            @event.listens_for(engine.sync_engine, "do_connect")
            def arguments(dialect: Any, record: Any, args: Any, given: dict[str, Any]) -> None:
                seen.append((given["connect_timeout"], given["program_name"]))
                given["user"] = "root"

            url = engine.url.set(username="nobody")
            async with interlock.aconnect(engine) as locks, locks.lock("a"):
                assert seen[0] == (3, "theirs")
            other = create_async_engine(url)
            with pytest.raises(StoreError, match="nobody"):
                await interlock.aconnect(other).lock("a").acquire(blocking=False)
            await other.dispose()

    played(play)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # SQLAlchemy awaits no coroutine here
@pytest.mark.parametrize("driver", DRIVERS)
def test_an_engine_that_makes_its_connections_itself_is_refused(mariadb: MariaServer, driver: str) -> None:
    async def creator(*args: Any, **given: Any) -> Any:
        raise AssertionError("nobody asks it for a connection")

    async def play() -> None:
        async with engine_of(mariadb, driver, async_creator=creator) as engine:
            with pytest.raises(InvalidArgument, match="dial="):
                interlock.aconnect(engine)

    played(play)


def test_a_server_that_is_away_is_told() -> None:
    async def play() -> None:
        engine = create_async_engine("mysql+aiomysql://root@127.0.0.1:1/x")
        async with interlock.aconnect(engine) as locks:
            with pytest.raises(StoreError, match="Cannot connect to"):
                await locks.lock("a").acquire(timeout=1)
        await engine.dispose()

    played(play)
