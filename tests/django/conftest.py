"""Django for the tests: its settings, and databases that last for the session."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import django
import pytest
from asgiref.sync import SyncToAsync
from django.conf import settings
from django.db import connections
from django.db.backends.signals import connection_created
from django.test.utils import setup_databases, setup_test_environment, teardown_databases, teardown_test_environment

from tests.servers import MariaServer, PostgresServer, need

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()


def _server(kind: str, stack: ExitStack) -> dict[str, str]:
    """Start a private server of a kind of database; return Django's settings for it."""
    if kind == "sqlite":
        return {}
    if kind == "postgresql":
        need("postgres")
        server: Any = stack.enter_context(PostgresServer())
    else:
        need("mariadb")
        server = stack.enter_context(MariaServer())
    return {"HOST": server.host, "PORT": str(server.port), "USER": server.user}


def _in_a_hurry(connection: Any, **_: object) -> None:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous = OFF")


def set_up(stack: ExitStack) -> None:
    """Make the test databases, empty, with all tables; the stack removes them."""
    connection_created.connect(_in_a_hurry)
    place = _server(settings.DATABASE, stack)
    for alias in settings.DATABASES:
        connections.settings[alias].update(place)
    setup_test_environment()
    stack.callback(teardown_test_environment)
    made = setup_databases(verbosity=0, interactive=False)
    stack.callback(connections.close_all)
    stack.callback(teardown_databases, made, verbosity=0)
    # The thread in which tasks ask Django's ORM keeps its connection.
    stack.callback(lambda: SyncToAsync.single_thread_executor.submit(connections.close_all).result())


@pytest.fixture(scope="session")
def databases() -> Iterator[None]:
    """The test databases; tests really commit, and delete the rows that they wrote."""
    with ExitStack() as stack:
        set_up(stack)
        yield


@pytest.fixture
def in_memory(clean: None) -> Iterator[None]:
    """Locks in memory, new for the test."""
    from interlock.django.testing import override_locks

    with override_locks():
        yield
