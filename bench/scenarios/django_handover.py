"""Two processes of a Django project on PostgreSQL pass one lock to each other; measured as on files."""

from __future__ import annotations

from bench.contestants import django_site as site
from bench.contestants import needs
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import handover

LOCK, OCCUPY = "interlock lock", "interlock occupy"
PGLOCK, PGLOCK_READS = Beside("django-pglock"), Beside("django-pglock, reads")

ours = needs.module("interlock.django.row_lock", install="-e .[django]")
pglock = needs.module("pglock", install="django-pglock")
SCENARIO: Scenario[handover.Player] = Scenario(
    key="django_handover",
    title="Hand-over to a waiting process in a Django project on PostgreSQL",
    groups=frozenset({"django"}),
    contestants=(
        Contestant(
            LOCK, handover.blocking(site.entered(site.our_lock)), ours, "ours", notes="the SQL store of its database"
        ),
        Contestant(OCCUPY, handover.blocking(site.entered(site.our_row)), ours, "ours", notes="reads the row"),
        Contestant(PGLOCK.peer, handover.blocking(site.entered(site.pg_lock)), pglock, notes="waits in the server"),
        Contestant(
            PGLOCK_READS.peer,
            handover.blocking(site.entered(site.reads(site.pg_lock))),
            pglock,
            notes="refresh_from_db",
        ),
    ),
    metrics=handover.METRICS,
    work=handover.work,
    fold=handover.fold,
    workers=2,
    beside=(PGLOCK, PGLOCK_READS),
    targets=(
        Target("at most 2 x django-pglock's", LOCK, "us", 0.5, least=True, beside=PGLOCK),
        Target("at most 2 x django-pglock's with the same work", OCCUPY, "us", 0.5, least=True, beside=PGLOCK_READS),
    ),
    stage=site.stage,
)
