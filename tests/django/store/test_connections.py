"""The connections of the ORM store: how many there are, what happens when they break, and poolers between."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import connections
from django.test import override_settings

from interlock.core.errors import StoreError
from interlock.django import alocks, locks, pool, wrappers
from interlock.django.configured import forget_connections
from interlock.django.listener import NotificationListener
from interlock.django.models import Claim
from interlock.django.store import OrmStore
from interlock.django.wrappers import PATIENT
from interlock.testing.waiting import eventually, moment, since
from tests.servers import PgBouncer, Proxy, need

POSTGRES = settings.DATABASE == "postgresql"
MOST = 5  # sessions that the server allows the user `narrow`
Site = Callable[..., None]


@pytest.fixture
def site(databases: None) -> Iterator[Site]:
    """Keep the claims in the database `default`, connected to in another way, which the test says."""

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
    pool._known.pop("claims", None)
    NotificationListener._known.pop("claims", None)


def ask(words: str) -> Any:
    """Ask the server, by the connection of this thread."""
    with connections["default"].cursor() as cursor:
        cursor.execute(words)
        return cursor.fetchall() if cursor.description else None


@pytest.fixture
def narrow(databases: None) -> Iterator[str]:
    """A user who may have few connections at a time."""
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
    """Let threads that come at once lock a name of their own each; return what went wrong."""
    start = threading.Barrier(threads)

    def one(number: int) -> Any:
        start.wait(60)
        try:
            for _ in range(rounds):
                with locks.lock(f"name {number}", timeout=60):
                    pass
        except Exception as error:
            return error

    with ThreadPoolExecutor(threads) as workers:
        return [each for each in workers.map(one, range(threads)) if each is not None]


def test_a_server_that_has_no_connection_left_is_waited_for(narrow: str, site: Site) -> None:
    site({"MAX_CONNECTIONS": 40}, USER=narrow)
    assert crowd(30) == []


def test_a_process_has_few_connections_for_many_threads_and_tasks(narrow: str, site: Site) -> None:
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
        assert 1 <= sessions(narrow) <= 3
        others.result(60)


def test_tasks_that_can_not_have_a_worker_are_told_so_and_have_one_once_they_may(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site()
    start = threading.Thread.start

    def refuses(thread: threading.Thread) -> None:
        if thread.name.startswith("interlock-orm"):
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuses)
            with pytest.raises(StoreError, match="no thread"):
                await alocks.lock("a", ttl=1.5).acquire()
        async with alocks.lock("a", timeout=20):
            pass
        await alocks.close()

    asyncio.run(main())


def test_who_finds_no_connection_waits_for_its_timeout_and_no_longer(site: Site) -> None:
    site({"MAX_CONNECTIONS": 1})
    taken: pool.Pool = locks["default"].store.store.register.pool
    with locks.lock("a"):  # its row is in line, when there is no connection to look again
        with ThreadPoolExecutor(2) as workers:
            waiter = workers.submit(locks.lock("a").acquire, timeout=2)
            eventually(lambda: len(Claim.objects.filter(state="pending")) == 1)
            with taken.connection():
                began = moment()
                assert locks.lock("b").acquire(timeout=0.5) is None
                assert time.monotonic() - began > 0.4
                assert since(began) < 5
                late = workers.submit(locks.lock("c").acquire, timeout=60)
            assert waiter.result(60) is None
            grant = late.result(60)
            assert grant.release()
    assert [view.name for view in locks.claims()] == []


def test_connections_that_nobody_uses_are_closed(narrow: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE", 0.5)
    site(USER=narrow)
    assert crowd(4) == []
    assert sessions(narrow) >= 1
    eventually(lambda: sessions(narrow) == 0)
    with locks.lock("a"):
        assert sessions(narrow) == 1


def test_a_release_and_a_renewal_whose_connection_was_cut_are_done_again(site: Site) -> None:
    with Proxy(connections.settings["default"]["HOST"], int(connections.settings["default"]["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        grant = locks.lock("a").acquire()
        assert grant is not None
        proxy.cut()
        assert grant.renew()
        proxy.cut_after_request(b"UPDATE")
        assert grant.renew()
        proxy.cut()
        assert [view.name for view in locks.claims()] == ["a"]
        proxy.cut_after_request(b"UPDATE")  # it is done, and nobody hears of it
        assert grant.release()
        assert proxy.cuts == 2
        second = locks.lock("a").acquire(timeout=0)
        assert second is not None
        proxy.cut()
        assert second.release()


def test_a_claim_that_was_taken_away_was_not_released_however_often_that_is_tried(site: Site) -> None:
    with Proxy(connections.settings["default"]["HOST"], int(connections.settings["default"]["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        grant = locks.lock("a").acquire()
        assert grant is not None
        assert locks.evict("a") == 1
        proxy.cut_after_request(b"UPDATE")
        assert not grant.release()


def test_pgbouncer_in_transaction_mode(site: Site) -> None:
    if not POSTGRES:
        return
    need("pgbouncer")
    place = connections.settings["default"]
    with PgBouncer((place["HOST"], int(place["PORT"]), place["USER"])) as bouncer:
        site({"MAX_CONNECTIONS": 8}, HOST=bouncer.host, PORT=str(bouncer.port))
        assert crowd(12, rounds=12) == []
        prepared: pool.Pool = locks["default"].store.store.register.pool
        with prepared.connection() as connection:
            assert getattr(connection.connection, "prepare_threshold", None) is None
        forget_connections(setting="INTERLOCK")
    direct = OrmStore("default")
    with direct.register.pool.connection() as connection:
        # psycopg2 never prepares statements.
        assert getattr(connection.connection, "prepare_threshold", 5) is not None
    direct.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a second for an answer, so that the tests need not wait for long."""
    monkeypatch.setattr(pool, "ANSWER", 1.0)
    monkeypatch.setattr(pool, "LOOK", 0.1)
    patient = {"postgresql": {"connect_timeout": 2}, "mysql": dict.fromkeys(PATIENT["mysql"], 1)}
    monkeypatch.setattr(wrappers, "PATIENT", patient)


@pytest.mark.parametrize("stale", [20.0, 0.0], ids=["used just now", "idle for long"])
def test_a_connection_that_a_balancer_has_forgotten_costs_one_time_out(
    site: Site, impatient: None, monkeypatch: pytest.MonkeyPatch, stale: float
) -> None:
    monkeypatch.setattr(pool, "STALE", stale)
    place = connections.settings["default"]
    with ThreadPoolExecutor(1) as beside, Proxy(place["HOST"], int(place["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        with locks.lock("warm"):
            pass
        proxy.forget()
        grant = beside.submit(locks.lock("a").acquire, timeout=60).result(20)
        assert grant is not None
        assert grant.release()


def test_a_server_that_is_silent_is_given_up_and_used_again_when_it_answers(site: Site, impatient: None) -> None:
    place = connections.settings["default"]
    many = pool.MOST + 2

    def attempt(number: int) -> Any:
        return suppressed(lambda: locks.lock(f"name {number}").acquire(timeout=0.2))

    with ThreadPoolExecutor(many) as beside, Proxy(place["HOST"], int(place["PORT"])) as proxy:
        site(HOST=proxy.host, PORT=str(proxy.port))
        with locks.lock("warm"):
            pass
        proxy.black_hole()
        asked = [beside.submit(attempt, number) for number in range(many)]
        assert [each.result(20) for each in asked] == [None] * many
        proxy.restore()
        grant = eventually(lambda: attempt(many))
        assert grant.release()


def suppressed(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or None if the store is away."""
    try:
        return call()
    except StoreError:
        return None
