"""The locks' connections to a database: their number, poolers, and when they close."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import connections
from django.test import override_settings
from guarded.helpers import in_threads

from interlock.django import alocks, locks
from interlock.django.configured import forget_connections
from interlock.testing.waiting import eventually
from tests.servers import PgBouncer, Proxy, need

POSTGRES = settings.DATABASE == "postgresql"
MOST = 5  # sessions that the server allows the user `narrow`
Site = Callable[..., None]


@pytest.fixture
def site(databases: None) -> Iterator[Site]:
    """Keep the claims in the database `default`, with the connection settings that the test gives."""

    def use(options: Any = None, **place: Any) -> None:
        connections.settings["claims"] = {**connections.settings["default"], **place}
        override.options = {"INTERLOCK": {"default": {"ALIAS": "claims", "OPTIONS": options or {}}}}
        override.enable()

    override = override_settings()
    yield use
    forget_connections(setting="INTERLOCK")
    if override.options:
        override.disable()
    connections.settings.pop("claims", None)


def ask(words: str) -> Any:
    """Run a statement on this thread's connection."""
    with connections["default"].cursor() as cursor:
        cursor.execute(words)
        return cursor.fetchall() if cursor.description else None


@pytest.fixture
def narrow(databases: None) -> Iterator[str]:
    """A user with a low limit of connections."""
    name = connections["default"].settings_dict["NAME"]
    if POSTGRES:
        ask(f"CREATE ROLE narrow LOGIN CONNECTION LIMIT {MOST}")
        ask("GRANT ALL ON ALL TABLES IN SCHEMA public TO narrow")
        ask("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO narrow")
    else:
        ask(f"CREATE USER narrow@'%' WITH MAX_USER_CONNECTIONS {MOST}")
        ask(f"GRANT ALL ON `{name}`.* TO narrow@'%'")
    yield "narrow"
    eventually(lambda: sessions("narrow") == 0)
    for words in ("DROP OWNED BY narrow", "DROP ROLE narrow") if POSTGRES else ("DROP USER narrow@'%'",):
        ask(words)


def sessions(user: str) -> int:
    """Return how many connections of a user the server has."""
    where = ("pg_stat_activity", "usename") if POSTGRES else ("information_schema.processlist", "user")
    (row,) = ask(f"SELECT count(*) FROM {where[0]} WHERE {where[1]} = '{user}'")
    return int(row[0])


def crowd(threads: int, rounds: int = 3) -> list[Any]:
    """Let threads start at once and each lock its own name; return the errors."""

    def one(number: int) -> None:
        for _ in range(rounds):
            with locks.lock(f"name {number}", timeout=60):
                pass

    answers = in_threads(*(partial(one, number) for number in range(threads)))
    return [answer for answer in answers if answer is not None]


def test_many_threads_and_tasks_share_few_connections(narrow: str, site: Site) -> None:
    site({"MAX_CONNECTIONS": 3}, USER=narrow)

    async def tasks() -> None:
        async def one(number: int) -> None:
            async with alocks.lock(f"task {number}", timeout=60):
                pass

        await asyncio.gather(*(one(number) for number in range(20)))
        await alocks.close()

    with ThreadPoolExecutor(1) as beside:
        others = beside.submit(async_to_sync(tasks))
        assert crowd(20) == []
        assert 1 <= sessions(narrow) <= 2 * 3  # threads and the tasks of a loop have their own
        others.result(60)
        eventually(lambda: 1 <= sessions(narrow) <= 3)  # a server ends a session after its connection


def test_releases_and_renewals_are_repeated_after_a_cut(site: Site) -> None:
    with Proxy(connections.settings["default"]["HOST"], int(connections.settings["default"]["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        grant = locks.lock("a").acquire()
        proxy.cut()
        assert grant.renew()
        proxy.cut()
        assert [view.name for view in locks.claims()] == ["a"]
        proxy.cut()
        assert grant.release()


def test_pgbouncer_in_transaction_mode(site: Site) -> None:
    if not POSTGRES:
        return
    need("pgbouncer")
    place = connections.settings["default"]
    with PgBouncer((place["HOST"], int(place["PORT"]), place["USER"])) as bouncer:
        site({"MAX_CONNECTIONS": 8}, HOST=bouncer.host, PORT=str(bouncer.port))
        assert crowd(12, rounds=12) == []


def test_connections_close_before_django_copies_or_drops(site: Site) -> None:
    kept = locks.lock("kept")  # as a module of a site keeps it
    with kept:
        pass
    name = connections["default"].settings_dict["NAME"]
    seen: list[int] = []

    def others() -> bool:
        if POSTGRES:
            rows = ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlock'")
        else:
            rows = ask(
                f"SELECT count(*) FROM information_schema.processlist WHERE db = '{name}' AND id <> connection_id()"
            )
        seen.append(int(rows[0][0]))
        return seen[-1] == 0

    assert not others()
    with connections["default"]._nodb_cursor():
        eventually(others)
    with kept:
        assert [view.name for view in locks.claims()] == ["kept"]
    with override_settings(INTERLOCK={}):
        assert locks.claims() == []
