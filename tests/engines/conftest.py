"""Stores by an engine that an asyncio program has already, and the part of the contract that tasks play."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from interlock.client.connect import open_store
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.world import Place
from tests.servers import MariaServer, PostgresServer, need
from tests.support.stores import _postgres

CONTRACT = Path(__file__).with_name("test_contract.py")  # others have one too


@pytest.fixture
def place() -> Place:
    """An empty place for locks; its tasks are those of a program with an engine of asyncpg."""
    server, table = _postgres(), f"t{uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(ddl(table).encode())  # beforehand: it takes as long as a short lease on a busy machine
    engine = create_async_engine(server.url.replace("postgresql:", "postgresql+asyncpg:"))
    ours = engine.execution_options(interlock_table=table)
    url = f"{server.url}?table={table}"
    return Place(open=lambda: open_store(url), url=url, open_for_tasks=lambda: open_store(ours, tasks=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, not skip, what of the contract is played by threads: they have no such engine."""
    left = [item for item in items if item.path == CONTRACT and not _of_tasks(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _of_tasks(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return "world_of_tasks" in names or ("world" in names and "tasks" in item.name)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this module's own, which its tests may pause."""
    need("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def ask(server: PostgresServer) -> Callable[..., list[Any]]:
    """Ask the server from outside."""

    def asked(words: str, *values: Any) -> list[Any]:
        with psycopg.connect(server.url, autocommit=True) as connection:
            cursor = connection.execute(words.encode(), values)
            return cursor.fetchall() if cursor.description else []

    return asked


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaServer]:
    """A MariaDB of this module's own."""
    need("mariadb")
    with MariaServer() as server:
        server.start()
        yield server


def played(play: Callable[[], Any]) -> None:
    """Run a coroutine function to its end."""
    asyncio.run(asyncio.wait_for(play(), 60))
