"""Listeners that hear nothing, in both colours: deaf behind a balancer that forgot them, and behind a pooler."""

from collections.abc import Iterator
from typing import Any

import pytest

from interlock.stores.postgresql import aconnection, alistener, listener
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import Ask, table_of
from tests.servers import PgBouncer, PostgresServer, Proxy, need
from tests.support.sides import Side, side


def listener_of(connection: Side) -> int:
    """Return the server's process that tells a connection of promotions; 0 if there is none."""
    listens: Any = connection.locks._session.store._listener
    if hasattr(listens, "_listening"):
        found = [each.connection for each in listens._listening.values() if not each.connection.ended]
    else:
        found = [listens._connection] if listens.live else []
    return sum(each.pgconn.backend_pid for each in found)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubt after a short silence."""
    for module in (listener, alistener):
        monkeypatch.setattr(module, "SILENCE", 0.2)
        monkeypatch.setattr(module, "RETRY", 0.1)


def test_a_listener_that_a_balancer_has_forgotten_is_noticed_and_replaced(
    server: PostgresServer, url: str, impatient: None, colour: str
) -> None:
    with Proxy(server.host, server.port) as proxy:
        through = url.replace(f":{server.port}/", f":{proxy.port}/") + "&timeout=1"
        with side(colour, url) as others, side(colour, through) as ours:
            grant = others.take("a")
            waiting = ours.waits("a")
            deaf = eventually(lambda: listener_of(ours))
            proxy.forget()
            eventually(lambda: listener_of(ours) not in (0, deaf))
            assert others.do(grant.release) is True
            got = waiting.result(WAIT_LIMIT)
            assert got.fence > grant.fence
            assert ours.do(got.release) is True


def test_a_listener_that_hears_another_channel_is_noticed_and_replaced(
    url: str, impatient: None, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    """As behind what swaps sessions: the connection lives, answers, and hears nothing."""
    real = listener.listening
    with side(colour, url) as others, side(colour, f"{url}&timeout=1") as ours:
        with monkeypatch.context() as patch:
            for module in (listener, aconnection):
                patch.setattr(module, "listening", lambda channel: real("another"))
            grant = others.take("a")
            waiting = ours.waits("a")
            deaf = eventually(lambda: listener_of(ours))
        eventually(lambda: listener_of(ours) not in (0, deaf))
        assert others.do(grant.release) is True
        assert ours.do(waiting.result(WAIT_LIMIT).release) is True


@pytest.fixture
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler, which takes notifications to others."""
    need("pgbouncer")
    with PgBouncer((server.host, server.port, server.user)) as pooler:
        yield pooler


def test_behind_a_pooler_who_waits_looks_and_asks_once_whether_it_may_listen(
    pooler: PgBouncer, url: str, impatient: None, ask: Ask, colour: str
) -> None:
    ask(ddl(table_of(url)))
    with Proxy(pooler.host, pooler.port) as proxy:
        through = f"{pooler.url.replace(f':{pooler.port}/', f':{proxy.port}/')}?table={table_of(url)}&sslmode=disable"
        with side(colour, through) as ours, side(colour, url) as others:
            grant = others.take("a")
            waiting = ours.waits("a")
            eventually(lambda: len(others.claims("a")) == 2)
            looks = proxy.sent.count(b"_enter")
            eventually(lambda: proxy.sent.count(b"_enter") >= looks + 6)
            assert not listener_of(ours)
            assert proxy.sent.count(b"pg_backend_pid") == 1
            assert b"LISTEN" not in proxy.sent
            assert others.do(grant.release) is True
            assert ours.do(waiting.result(WAIT_LIMIT).release) is True
