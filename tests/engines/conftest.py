"""Servers for the tests of engines that a program has already."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.servers import MariaServer, PostgresServer, need


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
