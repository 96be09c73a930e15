"""Connecting with the settings of an SQLAlchemy engine, in both colours; other engines are refused."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

import interlock
from interlock.api.connect import open_store, split
from interlock.core.errors import InvalidArgument
from interlock.stores.postgresql import PostgresStore
from interlock.testing.store_fixture import TASKS
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import Ask
from tests.servers import PostgresServer
from tests.support.client_actors import hand_over, side

OF_THE_HOOK = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'of the hook'"


@pytest.fixture
def engine(server: PostgresServer, ask: Ask, sync_or_async: str) -> Iterator[Any]:
    """An engine with one connection; its database has no locks."""
    ask("DROP TABLE IF EXISTS interlock_line")
    make: Any = create_async_engine if sync_or_async == TASKS else create_engine
    arguments = {"application_name": "of the engine"}
    engine = make(server.url.replace(":", "+psycopg:", 1), pool_size=1, max_overflow=0, connect_args=arguments)
    yield engine
    getattr(engine, "sync_engine", engine).dispose()


def test_locks_use_the_engines_database_but_not_its_pool(engine: Any, sync_or_async: str, server: Any) -> None:
    with side(sync_or_async, engine) as ours, side(sync_or_async, server.url) as theirs:
        for _ in range(3):
            grant = ours.take("a")
            waiting = theirs.waits("a")
            eventually(lambda: [view.state for view in ours.claims("a")] == ["using", "pending"])
            hand_over(ours, grant, theirs, waiting, WAIT_LIMIT)
        pool = getattr(engine, "sync_engine", engine).pool
        assert pool.checkedin() == pool.checkedout() == 0


def test_an_engine_of_the_other_colour_will_do(server: PostgresServer) -> None:
    engine = create_async_engine(server.url.replace(":", "+psycopg:", 1))
    with interlock.connect(engine) as locks, locks.lock("a"):
        assert len(locks.claims("a")) == 1


def test_its_arguments_and_hooks_count_for_each_connection(engine: Any, sync_or_async: str, ask: Ask) -> None:
    names = iter(["of the hook"] * 10)

    @event.listens_for(getattr(engine, "sync_engine", engine), "do_connect")
    def hook(dialect: Any, record: Any, args: Any, given: Any) -> None:
        assert given["application_name"] == "of the engine"
        given["application_name"] = next(names)

    with side(sync_or_async, engine) as ours:
        grant = ours.take("a")
        assert ask(OF_THE_HOOK) == [(True,)]
        assert ours.do(grant.release) is True


def test_its_execution_options_are_those_of_a_url(engine: Any, sync_or_async: str, ask: Ask) -> None:
    with side(sync_or_async, engine.execution_options(interlock_table="chosen", interlock_max_connections=2)) as ours:
        assert ours.do(ours.take("a").release) is True
    assert ask("SELECT name FROM chosen") == [("a",)]
    ask("DROP TABLE chosen")
    with pytest.raises(InvalidArgument, match="no option 'colour'"):
        open_store(engine.execution_options(interlock_colour="blue"))


def test_an_engine_that_shares_a_connection_is_refused(server: PostgresServer) -> None:
    own = psycopg.connect(server.url)
    engine = create_engine("postgresql+psycopg://", creator=lambda: own, poolclass=StaticPool)
    with pytest.raises(InvalidArgument, match="creator"):
        interlock.connect(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    own.close()


def test_what_is_no_engine_of_psycopg_is_refused(server: PostgresServer) -> None:
    engine = create_engine(server.url.replace(":", "+psycopg:", 1))
    with engine.connect() as connection, Session(engine) as session:
        for each in (connection, session):
            with pytest.raises(InvalidArgument, match="not an Engine"):
                interlock.connect(each)
    engine.dispose()
    with pytest.raises(InvalidArgument, match="Pass the URL"):
        interlock.aconnect(create_async_engine(server.url.replace(":", "+asyncpg:", 1)))


def test_a_password_is_asked_for_at_each_connection(server: PostgresServer, ask: Ask) -> None:
    asked: list[int] = []

    def password() -> str:
        asked.append(1)
        return "secret"

    with closing(PostgresStore.from_url(split(server.url), password=password).queue()) as queue:
        assert queue.namespaces() == []
        assert asked == [1]


def test_a_dial_function_must_return_new_connections(server: PostgresServer) -> None:
    store = PostgresStore.from_url(split(server.url), dial=lambda: psycopg.connect(server.url, autocommit=True))
    with closing(store.queue()) as queue:
        assert queue.namespaces() == []
    with psycopg.connect(server.url) as own:
        own.execute("SELECT 1")
        queue = PostgresStore.from_url(split(server.url), dial=lambda: own).queue()
        with pytest.raises(interlock.StoreError, match="in a transaction"):
            queue.namespaces()
        assert own.execute("SELECT 1").fetchall() == [(1,)]
