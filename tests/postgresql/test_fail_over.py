"""A replica takes over without the last steps, and a URL names several hosts, in both colours."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from interlock.core.errors import LockLost, StoreError
from interlock.testing.store_fixture import TASKS
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import table_of
from tests.servers import PostgresReplica, PostgresServer
from tests.support.client_actors import Side, hand_over, side
from tests.support.databases import cut_off

GRACE = 5  # seconds, also of the leases; longer than a fail-over takes on a busy machine


@pytest.fixture
def replica(server: PostgresServer, url: str) -> Iterator[PostgresReplica]:
    """A replica of the server."""
    with PostgresReplica(server) as replica:
        yield replica


@pytest.fixture
def there(replica: PostgresReplica) -> Iterator[Any]:
    """A session on the replica."""
    with psycopg.connect(replica.url, autocommit=True) as connection:
        yield connection


def hosts(url: str, *servers: PostgresServer) -> str:
    """Return a URL that names several servers, one of them the primary."""
    one = servers[0]
    named = ",".join(f"{each.host}:{each.port}" for each in servers)
    query = f"grace={GRACE}&target_session_attrs=read-write&table={table_of(url)}"
    return f"postgresql://{one.user}@{named}/{one.database}?{query}"


def held(ours: Side) -> Any:
    """Take the lock "a" for as long as the grace."""
    return ours.do(ours.locks.lock("a", ttl=GRACE).acquire)


def has_heard(server: PostgresServer, there: Any) -> None:
    """Wait until the replica has replayed all that the server has written."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        (last,) = connection.execute("SELECT pg_create_restore_point('now')").fetchone() or ("",)
    eventually(lambda: there.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (last,)).fetchone()[0])


def test_a_forgotten_holder_loses_before_the_grace_ends(
    server: PostgresServer, replica: PostgresReplica, there: Any, url: str, sync_or_async: str
) -> None:
    target = hosts(url, server, replica)
    with side(sync_or_async, target) as ours, side(sync_or_async, target) as others:
        fences = []
        for _ in range(3):
            grant = ours.take("a")
            fences.append(grant.fence)
            assert ours.do(grant.release) is True
        has_heard(server, there)
        cut_off(there)
        forgotten = held(ours)
        fences.append(forgotten.fence)
        server.kill()
        killed = time.monotonic()
        replica.promote()
        assert not there.execute(f"SELECT FROM {table_of(url)} WHERE id = %s", (forgotten.id,)).fetchall()
        assert others.take("a", timeout=0) is None
        assert ours.do(forgotten.renew) is False
        assert forgotten.lost
        with pytest.raises(LockLost):
            forgotten.check()
        assert ours.take("b", timeout=0) is None
        second = others.take("a", timeout=WAIT_LIMIT)
        assert time.monotonic() > killed + GRACE
        fences.append(second.fence)
        assert ours.do(forgotten.release) is False
        assert [view.id for view in ours.claims("a")] == [second.id]
        assert others.do(second.release) is True
        assert fences == sorted(set(fences))


def test_runs_known_to_the_replica_stay_recorded(
    server: PostgresServer, replica: PostgresReplica, there: Any, url: str, sync_or_async: str
) -> None:
    runs: list[str] = []

    def run(ours: Side, name: str) -> None:
        async def task() -> None:
            runs.append(name)

        work = task if sync_or_async == TASKS else partial(runs.append, name)
        ours.do(ours.locks.once(name, keep=600).run, work)

    with side(sync_or_async, hosts(url, server, replica)) as ours:
        run(ours, "heard")
        has_heard(server, there)
        cut_off(there)
        run(ours, "unheard")
        server.kill()
        replica.promote()
        run(ours, "heard")
        run(ours, "unheard")
        assert runs == ["heard", "unheard", "unheard"]


def test_claims_known_to_the_replica_continue_there(
    server: PostgresServer, replica: PostgresReplica, there: Any, url: str, sync_or_async: str
) -> None:
    target = hosts(url, server, replica)
    with side(sync_or_async, target) as ours, side(sync_or_async, target) as others:
        grant = ours.take("a")
        waiting = others.waits("a")
        eventually(lambda: len(ours.claims("a")) == 2)
        has_heard(server, there)
        server.kill()
        replica.promote()
        assert ours.do(grant.renew)
        assert not waiting.done()
        hand_over(ours, grant, others, waiting, WAIT_LIMIT)


@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
def test_the_writable_host_is_used_at_any_position(
    server: PostgresServer, replica: PostgresReplica, url: str, sync_or_async: str, order: int
) -> None:
    with side(sync_or_async, hosts(url, *(server, replica)[::order])) as ours, side(sync_or_async, url) as direct:
        grant = ours.take("a", timeout=0)
        assert [view.id for view in direct.claims("a")] == [grant.id]
        assert ours.do(grant.release) is True


def test_where_no_host_may_write_the_error_says_what_each_said(
    server: PostgresServer, replica: PostgresReplica, url: str, sync_or_async: str
) -> None:
    server.stop()
    with (
        side(sync_or_async, hosts(url, server, replica)) as ours,
        pytest.raises(StoreError, match=r"(?s)refused.*session is read-only"),
    ):
        ours.take("a", timeout=0)
