"""8 processes of a Django project on PostgreSQL contend for one name; measured as on Redis."""

from __future__ import annotations

from bench.contestants import django_site as site
from bench.contestants import needs
from bench.contestants.locks import Lock, NoLock
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import redis_processes
from bench.scenarios.processes import PROCESSES

OURS, PGLOCK = "interlock lock", Beside("django-pglock")

SCENARIO: Scenario[Lock] = Scenario(
    key="django_processes",
    title=f"{PROCESSES} processes of a Django project on PostgreSQL contend for one name",
    groups=frozenset({"django"}),
    contestants=(
        Contestant(
            OURS,
            site.entered(site.our_lock),
            needs.module("interlock.django.row_lock", install="-e .[django]"),
            "ours",
            notes="the SQL store of Django's database",
        ),
        Contestant(
            PGLOCK.peer,
            site.entered(site.pg_lock),
            needs.module("pglock", install="django-pglock"),
            notes="waits in the server",
        ),
        Contestant("no lock", NoLock, role="control", notes="must lose updates"),
    ),
    metrics=redis_processes.SCENARIO.metrics,
    work=redis_processes.work,
    fold=redis_processes.fold,
    workers=PROCESSES,
    beside=(PGLOCK,),
    targets=(
        Target("at least 0.25 x django-pglock", OURS, "rate", 0.25, least=True, beside=PGLOCK),
        Target("first come first served: nobody out of turn", OURS, "out_of_turn", 0.0),
        Target("no lost update", OURS, "lost", 0.0),
    ),
    stage=site.stage,
)
