"""Two processes pass one lock in an SQL database to each other; measured as on files."""

from __future__ import annotations

from bench.contestants import sql_locks
from bench.contestants.sql_locks import OURS
from bench.contestants.sql_server import stage
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import handover
from bench.scenarios.handover import awaiting, blocking

ADVISORY, PALS = Beside(sql_locks.ADVISORY), Beside(sql_locks.PALS)
TABLE, SQLITE = OURS["postgresql"], OURS["sqlite"]

SCENARIO: Scenario[handover.Player] = Scenario(
    key="sql_handover",
    title="Hand-over to a waiting process in a database",
    groups=frozenset({"sql"}),
    contestants=(
        *(Contestant(one.name, blocking(one.make), one.needs, "ours", one.notes) for one in OURS.values()),
        Contestant(
            f"{TABLE.name}, asyncio", awaiting(sql_locks.interlock_async("postgresql")), TABLE.needs, "ours", "tasks"
        ),
        *(
            Contestant(one.name, blocking(one.make), one.needs, "peer", one.notes, one.poll)
            for one in sql_locks.PEERS
        ),
        *(
            Contestant(one.name, blocking(one.make), one.needs, "limit", one.notes, one.poll)
            for one in sql_locks.LIMITS
        ),
    ),
    metrics=handover.METRICS,
    work=handover.work,
    fold=handover.fold,
    workers=2,
    beside=(ADVISORY, PALS),
    targets=(
        Target(
            "median at most 1.3 x raw pg_advisory_lock's (so at least 1/1.3)",
            TABLE.name,
            "us",
            1 / 1.3,
            True,
            ADVISORY,
        ),
        Target("median at most 5 ms", SQLITE.name, "us", 5000.0),
    ),
    stage=stage,
)
