"""PgBouncer between a process and the server, in each of its modes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import interlock
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import Ask, table_of
from tests.postgresql.test_settings import two_lose_no_update
from tests.servers import PgBouncer, PostgresServer, need
from tests.support.client_actors import side


@pytest.fixture(params=["session", "transaction", "statement"])
def pooled(request: pytest.FixtureRequest, server: PostgresServer, url: str, ask: Ask) -> Iterator[str]:
    """The URL of a pooler of each mode; the table exists."""
    need("pgbouncer")
    ask(ddl(table_of(url)))
    config = {"pool_mode": request.param, "default_pool_size": "20" if request.param == "session" else "2"}
    with PgBouncer((server.host, server.port, server.user), config=config) as pooler:
        yield f"{pooler.url}?table={table_of(url)}"


def test_a_lock_is_handed_over_renewed_and_released(pooled: str, sync_or_async: str) -> None:
    with side(sync_or_async, pooled) as ours, side(sync_or_async, pooled) as theirs:
        grant = ours.take("a", timeout=0)
        assert theirs.take("a", timeout=0) is None
        waiting = theirs.waits("a")
        eventually(lambda: len(ours.claims("a")) == 2)
        assert ours.do(grant.renew)
        assert ours.do(grant.release) is True
        second = waiting.result(WAIT_LIMIT)
        assert second.fence > grant.fence
        assert theirs.do(second.renew)
        assert ours.do(ours.locks.evict, "a") == 1
        assert not theirs.do(second.renew)
        assert ours.claims("a") == []


def test_a_pooler_leaks_no_advisory_lock_and_loses_no_update(pooled: str, ask: Ask) -> None:
    two_lose_no_update(pooled, rounds=10)
    assert ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


@pytest.mark.parametrize(
    "setting", ["default_transaction_isolation = 'serializable'", "default_transaction_read_only = on"]
)
def test_other_defaults_are_set_right(pooled: str, role: Callable[[str], None], setting: str) -> None:
    """Statement mode allows no transactions, but a step is one statement."""
    role(setting)
    two_lose_no_update(pooled, rounds=5)


def test_the_table_is_made(pooled: str, sync_or_async: str) -> None:
    with side(sync_or_async, f"{pooled}other") as ours:
        assert ours.do(ours.take("a", timeout=0).release) is True


def test_a_pooler_that_starts_again_costs_nobody_the_lock(
    server: PostgresServer, url: str, ask: Ask, sync_or_async: str
) -> None:
    need("pgbouncer")
    ask(ddl(table_of(url)))
    with (
        PgBouncer((server.host, server.port, server.user)) as pooler,
        side(sync_or_async, f"{pooler.url}?table={table_of(url)}") as ours,
        interlock.connect(url) as others,
        ThreadPoolExecutor(1) as pool,
    ):
        grant = ours.take("a")
        waiting = pool.submit(others.lock("a").acquire)
        eventually(lambda: len(others.claims("a")) == 2)
        pooler.restart()
        assert ours.do(grant.renew)
        pooler.restart()
        assert ours.do(grant.release) is True
        waiting.result(WAIT_LIMIT).release()
