"""A random walk over many names on one session: no two holders, and nothing is left behind."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import create_engine, text

import interlock
from interlock.stores.sql.statements import Statement
from interlock.testing.waiting import eventually
from tests.postgresql.conftest import Ask
from tests.servers import PostgresServer

NAMES = [f"name {number}" for number in range(20)]
WALKERS = 4
STEPS = 60
SETTINGS = ("lock_timeout", "statement_timeout", "synchronous_commit", "transaction_isolation", "enable_seqscan")
OF_A_SESSION = "SELECT " + ", ".join(f"current_setting('{name}')" for name in SETTINGS)
ADVISORY = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


class Guarded:
    """What the locks guard: who is there with a name, and the fences that came."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._inside: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.visits = 0

    def visit(self, name: str, fence: int) -> None:
        """Be there for a moment."""
        with self._mutex:
            assert self._inside.setdefault(name, threading.get_ident()) == threading.get_ident(), "two holders"
            assert fence > self.last.get(name, 0)
            self.last[name] = fence
            self.visits += 1
        threading.Event().wait(0.0005)
        with self._mutex:
            del self._inside[name]


def walked(walk: Callable[[random.Random], None]) -> None:
    """Let several threads walk, each with a seed of its own that is always the same."""
    with ThreadPoolExecutor(WALKERS) as pool:
        for done in [pool.submit(walk, random.Random(f"walker {number}")) for number in range(WALKERS)]:
            done.result(120)


def test_a_walk_over_a_table_by_one_session_leaves_nothing(url: str, ask: Ask, role: Callable[[str], None]) -> None:
    role("synchronous_commit = on")  # steps switch it off, each for itself
    guarded = Guarded()
    with interlock.connect(f"{url}&max_connections=1") as locks, interlock.connect(url) as others:
        before = locks.store._server.ask(Statement(OF_A_SESSION))

        def walk(chance: random.Random) -> None:
            for _ in range(STEPS):
                name = chance.choice(NAMES)
                way = chance.choice(("with", "try", "short", "long lease", "all", "evicted"))
                if way == "all":
                    with locks.all(*chance.sample(NAMES, 3), timeout=60) as grants:
                        for grant in grants:
                            guarded.visit(grant.name, grant.fence)
                    continue
                if way == "evicted":
                    locks.evict(f"nobody's {name}")
                    continue
                waits: Any = {"try": {"blocking": False}, "short": {"timeout": 0.01}}.get(way, {"timeout": 60})
                grant = locks.lock(name, ttl=60 if way == "long lease" else 10).acquire(**waits)
                if grant is not None:
                    guarded.visit(name, grant.fence)
                    assert grant.release() is True

        walked(walk)
        assert guarded.visits > WALKERS * STEPS / 2
        assert [view for name in NAMES for view in others.claims(name)] == []
        assert ask(ADVISORY) == [(0,)]
        assert len(locks.store._server._idle) == 1
        assert locks.store._server.ask(Statement(OF_A_SESSION)) == before


def test_a_walk_over_advisory_locks_of_transactions_on_one_session_leaves_nothing(
    server: PostgresServer, ask: Ask
) -> None:
    guarded = Guarded()
    engine = create_engine(server.url.replace(":", "+psycopg:", 1), pool_size=1, max_overflow=0, pool_timeout=60)
    url = server.url.replace(":", "+advisory:", 1)
    try:
        with engine.connect() as connection:
            before = connection.execute(text(OF_A_SESSION)).one()
        with interlock.connect(url) as locks:

            def walk(chance: random.Random) -> None:
                for _ in range(STEPS):
                    name = chance.choice(NAMES)
                    ends = chance.choice(("commit", "rollback", "session", "session, short"))
                    if ends.startswith("session"):
                        limit = 0.01 if "short" in ends else 60
                        grant = locks.lock(name).acquire(timeout=limit)
                        if grant is not None:
                            guarded.visit(name, grant.fence)
                            assert grant.release() is True
                        continue
                    how: Any = chance.choice(({"blocking": False}, {"timeout": 0.02}, {"timeout": 60}))
                    with engine.connect() as connection:
                        grant = locks.lock(name, connection=connection).acquire(**how)
                        if grant is not None:
                            guarded.visit(name, grant.fence)
                        getattr(connection, ends)()

            walked(walk)
            assert guarded.visits > WALKERS * STEPS / 2
            assert [view for name in NAMES for view in locks.claims(name)] == []
            eventually(lambda: ask(ADVISORY) == [(0,)])
        with engine.connect() as connection:
            assert connection.execute(text(OF_A_SESSION)).one() == before
            assert engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    finally:
        engine.dispose()
