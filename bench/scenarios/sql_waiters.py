"""50 threads of one process wait for a lock that another process holds: what that asks of the server.

Statements are counted as transactions, by the server; its counts come up to a second late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from bench.contestants import sql_locks
from bench.contestants.locks import Lock
from bench.contestants.sql_locks import OURS, server_of
from bench.contestants.sql_server import stage
from bench.model import Contestant, Metric, Raw, Scenario, Seat, Target

WAITERS = 50
LONG = 10  # times as long as other scenarios: a waiter asks seldom
ARRIVE = 2.0  # seconds until all of them wait
DONE = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database"
CLIENTS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


def work(contestant: Contestant[Lock], seat: Seat) -> Raw:
    """Hold and count, or wait fifty times."""
    seconds = LONG * seat.seconds
    if seat.index:
        return wait_in_threads(contestant, seat)
    import psycopg

    with psycopg.connect(server_of(seat.place, "postgresql"), autocommit=True) as server:

        def asked(words: str) -> int:
            return int(server.execute(words).fetchone()[0])  # type: ignore[call-overload, index, unused-ignore]

        lock = contestant.make(seat.place)
        lock.acquire()
        connections = asked(CLIENTS)
        seat.together.wait()
        time.sleep(ARRIVE)
        before = asked(DONE)
        time.sleep(seconds)
        done, connections = asked(DONE) - before - 1, asked(CLIENTS) - connections
        lock.release()
    return {"statements": max(0, done) / seconds / WAITERS, "connections": float(connections)}


def wait_in_threads(contestant: Contestant[Lock], seat: Seat) -> Raw:
    """Let fifty threads come, each with a lock of its own, and end when all have had it."""
    shared: list[Lock] = []

    def wait() -> None:
        with ExitStack() as closing:
            lock = shared[0] if shared else contestant.make(replace(seat.place, closing=closing))
            lock.acquire()
            lock.release()

    if contestant.role == "ours":  # one connection of ours for all
        shared.append(contestant.make(seat.place))
    seat.together.wait()
    threads = [threading.Thread(target=wait) for _ in range(WAITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {}


def fold(raws: Sequence[Raw]) -> Raw:
    """Only the holder counts."""
    return raws[0]


TABLE, SESSIONS = OURS["postgresql"], OURS["postgresql+advisory"]
WITHOUT = (sql_locks.PGLOCK,)  # Django is set up once in a process, and so can't be opened fifty times
SCENARIO: Scenario[Lock] = Scenario(
    key="sql_waiters",
    title=f"{WAITERS} threads of one process wait for a lock on PostgreSQL",
    groups=frozenset({"sql"}),
    contestants=(
        *(Contestant(one.name, one.make, one.needs, "ours", one.notes) for one in (TABLE, SESSIONS)),
        *(
            Contestant(one.name, one.make, one.needs, notes=one.notes)
            for one in sql_locks.PEERS
            if one.name not in WITHOUT
        ),
        *(
            Contestant(one.name, one.make, one.needs, "limit", one.notes)
            for one in sql_locks.LIMITS
            if one.name == sql_locks.ADVISORY
        ),
    ),
    metrics=(Metric("statements", "statements/s per waiter"), Metric("connections", "connections of the process")),
    work=work,
    fold=fold,
    workers=2,
    targets=(
        Target("at most 1 statement/s per waiter", TABLE.name, "statements", 1.0),
        Target("at most 2 connections", TABLE.name, "connections", 2.0),
    ),
    stage=stage,
)
