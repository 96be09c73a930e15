"""Acquire and release of one name in an SQL database by one process, without contention."""

from __future__ import annotations

from bench.contestants import sql_locks
from bench.contestants.sql_locks import OURS
from bench.contestants.sql_server import stage
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import pairs

TABLE, SESSIONS = OURS["postgresql"], OURS["postgresql+advisory"]
SELECTS, PALS, PGLOCK = Beside(sql_locks.SELECTS), Beside(sql_locks.PALS), Beside(sql_locks.PGLOCK)
WRITES, GET_LOCK = Beside(sql_locks.WRITES), Beside(sql_locks.GET_LOCK)

SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="sql_uncontended",
    title="Uncontended acquire+release of one name in a database, one process",
    groups=frozenset({"sql"}),
    contestants=(
        *(Contestant(one.name, pairs.calls(one.make), one.needs, "ours", one.notes) for one in OURS.values()),
        *(
            Contestant(
                f"{OURS[scheme].name}, asyncio",
                pairs.awaits(sql_locks.interlock_async(scheme)),
                OURS[scheme].needs,
                "ours",
                "await acquire(), await release()",
            )
            for scheme in ("postgresql", "postgresql+advisory")
        ),
        *(Contestant(one.name, pairs.calls(one.make), one.needs, notes=one.notes) for one in sql_locks.PEERS),
        *(
            Contestant(one.name, pairs.calls(one.make), one.needs, "limit", one.notes)
            for one in (*sql_locks.LIMITS, *sql_locks.YARDSTICKS)
        ),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(SELECTS, PALS, PGLOCK, WRITES, GET_LOCK),
    targets=(
        Target("at most 3 x two SELECT 1 (so at least 1/3)", TABLE.name, "us", 1 / 3, True, SELECTS),
        Target("at least 4 x PALs", TABLE.name, "us", 4.0, True, PALS),
        Target("at least level with django-pglock", SESSIONS.name, "us", 1.0, True, PGLOCK),
        Target("at least half of raw GET_LOCK", OURS["mysql+advisory"].name, "us", 0.5, True, GET_LOCK),
        Target("at least 0.6 x two writes", OURS["sqlite"].name, "us", 0.6, True, WRITES),
    ),
    stage=stage,
)
