"""Servers for the tests of engines that the program passes."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.servers import MariaServer, PostgresServer, need


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A private server of this module, which its tests may pause."""
    need("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def ask(server: PostgresServer) -> Callable[..., list[Any]]:
    """Runs a statement on a separate connection."""

    def asked(words: str, *values: Any) -> list[Any]:
        with psycopg.connect(server.url, autocommit=True) as connection:
            cursor = connection.execute(words.encode(), values)
            return cursor.fetchall() if cursor.description else []

    return asked


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaServer]:
    """A private MariaDB of this module."""
    need("mariadb")
    with MariaServer() as server:
        server.start()
        yield server


def played(play: Callable[[], Any]) -> None:
    """Run a coroutine function to its end."""
    asyncio.run(asyncio.wait_for(play(), 60))
