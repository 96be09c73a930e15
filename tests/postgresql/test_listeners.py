"""Listeners that receive nothing, in both colours: behind a balancer that dropped them, and behind a pooler."""

from collections.abc import Iterator

import pytest

from interlock.stores.postgresql.ddl import ddl
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import Ask, table_of
from tests.servers import PgBouncer, PostgresServer, Proxy, serving
from tests.support.client_actors import hand_over, side


def test_a_listener_forgotten_by_a_balancer_is_replaced(server: PostgresServer, url: str, sync_or_async: str) -> None:
    with Proxy(server.host, server.port) as proxy:
        through = url.replace(f":{server.port}/", f":{proxy.port}/") + "&timeout=1"
        with side(sync_or_async, url) as others, side(sync_or_async, through) as ours:
            grant = others.take("a")
            waiting = ours.waits("a")
            eventually(lambda: len(others.claims("a")) == 2)
            before = proxy.connections
            proxy.forget()
            eventually(lambda: proxy.connections > before)
            hand_over(others, grant, ours, waiting, WAIT_LIMIT)


@pytest.fixture
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler, which delivers notifications to other sessions."""
    yield from serving("pgbouncer", lambda: PgBouncer((server.host, server.port, server.user)))


def test_behind_a_pooler_waiters_poll_and_try_to_listen_once(
    pooler: PgBouncer, url: str, ask: Ask, sync_or_async: str
) -> None:
    ask(ddl(table_of(url)))
    with Proxy(pooler.host, pooler.port) as proxy:
        through = f"{pooler.url.replace(f':{pooler.port}/', f':{proxy.port}/')}?table={table_of(url)}&sslmode=disable"
        with side(sync_or_async, through) as ours, side(sync_or_async, url) as others:
            grant = others.take("a")
            waiting = ours.waits("a")
            eventually(lambda: len(others.claims("a")) == 2)
            looks = proxy.sent.count(b"_enter")
            eventually(lambda: proxy.sent.count(b"_enter") >= looks + 6)
            assert proxy.sent.count(b"pg_backend_pid") == 1
            assert b"LISTEN" not in proxy.sent
            assert others.do(grant.release) is True
            assert ours.do(waiting.result(WAIT_LIMIT).release) is True
