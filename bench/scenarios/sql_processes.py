"""8 processes contend for one name in an SQL database; measured as on Redis."""

from __future__ import annotations

from bench.contestants import sql_locks
from bench.contestants.locks import Lock, NoLock
from bench.contestants.sql_locks import OURS
from bench.contestants.sql_server import stage
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import redis_processes
from bench.scenarios.processes import PROCESSES

PGLOCK, ADVISORY = Beside(sql_locks.PGLOCK), Beside(sql_locks.ADVISORY)
TABLE, SESSIONS = OURS["postgresql"], OURS["postgresql+advisory"]

SCENARIO: Scenario[Lock] = Scenario(
    key="sql_processes",
    title=f"{PROCESSES} processes contend for one name in a database",
    groups=frozenset({"sql"}),
    contestants=(
        *(Contestant(one.name, one.make, one.needs, "ours", one.notes) for one in OURS.values()),
        *(Contestant(one.name, one.make, one.needs, notes=one.notes) for one in sql_locks.PEERS),
        *(Contestant(one.name, one.make, one.needs, "limit", one.notes) for one in sql_locks.LIMITS),
        Contestant("no lock", NoLock, role="control", notes="must lose updates"),
    ),
    metrics=redis_processes.SCENARIO.metrics,
    work=redis_processes.work,
    fold=redis_processes.fold,
    workers=PROCESSES,
    beside=(PGLOCK, ADVISORY),
    targets=(
        Target("at least level with django-pglock", TABLE.name, "rate", 1.0, True, PGLOCK),
        *(
            target
            for one in (TABLE, SESSIONS)
            for target in (
                Target("first come first served: nobody out of turn", one.name, "out_of_turn", 0.0),
                Target("no lost update", one.name, "lost", 0.0),
            )
        ),
    ),
    stage=stage,
)
