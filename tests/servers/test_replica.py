"""A private replica takes over, also on a machine that lets it lag behind."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import psycopg

from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.servers import PostgresReplica, PostgresServer, need

PRUNED = "UPDATE counter SET value = value + 1"
"""Done often, it fills a page, and who fills the next one removes what is old there."""


def test_a_replica_that_lags_does_all_that_it_has_heard_of_and_is_promoted_at_once() -> None:
    """A query that asks for it has to wait for 30 s: the recovery removes what the query might still want to see."""
    need("postgres")
    with PostgresServer() as server, psycopg.connect(server.url, autocommit=True) as here:
        here.execute("CREATE TABLE counter AS SELECT 0 AS value")
        with PostgresReplica(server) as replica, psycopg.connect(replica.url, autocommit=True) as there:
            (process,) = there.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'"
            ).fetchone() or (0,)
            os.kill(process, signal.SIGSTOP)
            for _ in range(1000):
                here.execute(PRUNED)
            (last,) = here.execute("SELECT pg_create_restore_point('now')").fetchone() or ("",)
            received = "SELECT pg_last_wal_receive_lsn() >= %s::pg_lsn"
            eventually(lambda: there.execute(received, (last,)).fetchone() == (True,))
            server.kill()
            with ThreadPoolExecutor(1) as beside:
                promoting = beside.submit(replica.promote)
                eventually((replica.folder / "data" / "promote").exists)  # it was asked
                os.kill(process, signal.SIGCONT)
                promoting.result(WAIT_LIMIT)
            assert there.execute(PRUNED + " RETURNING value").fetchall() == [(1001,)]
