"""Stores on an SQLAlchemy engine of psycopg, in both colours: waiters, and hooks of the program."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from interlock.core.errors import StoreError
from interlock.stores.sql import waiters
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.waiting import WAIT_LIMIT, eventually, moment, since
from interlock.testing.world import TASKS
from tests.postgresql.conftest import Ask
from tests.servers import PostgresServer
from tests.support.sides import side


@pytest.fixture
def engine(server: PostgresServer, ask: Ask, colour: str) -> Iterator[Any]:
    """An engine whose pool is none of ours; there are no locks in its database."""
    ask(ddl())
    ask("DELETE FROM interlock_line")
    make: Any = create_async_engine if colour == TASKS else create_engine
    engine = make(server.url.replace(":", "+psycopg:", 1), pool_size=1, max_overflow=0)
    yield engine
    getattr(engine, "sync_engine", engine).dispose()


def test_who_waits_is_handed_the_lock_at_once(engine: Any, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "LOOK_AGAIN", WAIT_LIMIT * 3)  # it is told, or it waits for too long
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(side(colour, engine)) for _ in range(2))
        for _ in range(3):
            grant = ours.take("a")
            waiting = theirs.waits("a")
            eventually(lambda: [view.state for view in ours.claims("a")] == ["using", "pending"])
            began = moment()
            assert ours.do(grant.release) is True
            got = waiting.result(WAIT_LIMIT)
            assert since(began) < 2
            assert got.fence > grant.fence
            assert theirs.do(got.release) is True
        assert ours.claims("a") == []


def test_a_hook_that_leaves_a_transaction_open_is_refused(engine: Any, colour: str) -> None:
    @event.listens_for(getattr(engine, "sync_engine", engine), "connect")
    def hook(connection: Any, record: Any) -> None:
        connection.cursor().execute("SELECT 1")

    with side(colour, engine) as ours:
        for how in ({"timeout": 0}, {}):
            with pytest.raises(StoreError, match=r"in a transaction already: does a hook of the engine begin one\?"):
                ours.take("a", **how)


def test_a_hook_that_ends_its_transaction_sets_what_it_likes(engine: Any, colour: str, ask: Ask) -> None:
    @event.listens_for(getattr(engine, "sync_engine", engine), "connect")
    def hook(connection: Any, record: Any) -> None:
        connection.cursor().execute("SET application_name = 'of the hook'")
        connection.commit()

    with side(colour, engine) as ours:
        grant = ours.take("a")
        assert ask("SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'of the hook'") == [(True,)]
        assert ours.do(grant.release) is True
