"""The lock of a row in a Django project on PostgreSQL, in one process without contention."""

from __future__ import annotations

from bench.contestants import django_site as site
from bench.contestants import needs
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import pairs

OCCUPY, LOCK = "interlock occupy", "interlock lock"
REDIS_OCCUPY, REDIS_LOCK = "interlock occupy, Redis", "interlock lock, Redis"
PGLOCK, PGLOCK_READS = Beside("django-pglock"), Beside("django-pglock, reads")
REDIS, REDIS_READS = Beside("django-redis"), Beside("django-redis, reads")

ours = needs.module("interlock.django.occupation", install="-e .[django]")
SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="django_occupy",
    title="Uncontended lock of a row in a Django project on PostgreSQL, one process",
    groups=frozenset({"django"}),
    contestants=(
        Contestant(OCCUPY, site.site(site.occupied("default")), ours, "ours", notes="the SQL store; reads the row"),
        Contestant(LOCK, site.site(site.named("default")), ours, "ours", notes="the SQL store; the lock alone"),
        Contestant(REDIS_OCCUPY, site.site(site.occupied("redis")), ours, "ours", notes="reads the row"),
        Contestant(REDIS_LOCK, site.site(site.named("redis")), ours, "ours", notes="the lock alone"),
        Contestant(
            PGLOCK_READS.peer,
            site.site(site.pglock(True)),
            needs.module("pglock", install="django-pglock"),
            notes="advisory lock; refresh_from_db",
        ),
        Contestant(
            PGLOCK.peer,
            site.site(site.pglock(False)),
            needs.module("pglock", install="django-pglock"),
            notes="advisory lock alone",
        ),
        Contestant(
            REDIS_READS.peer,
            site.site(site.django_redis(True)),
            needs.module("django_redis", install="django-redis"),
            notes="cache.lock; refresh_from_db",
        ),
        Contestant(
            REDIS.peer,
            site.site(site.django_redis(False)),
            needs.module("django_redis", install="django-redis"),
            notes="cache.lock, which is redis-py's",
        ),
        Contestant("refresh_from_db", site.site(site.read_only), ours, "limit", notes="no lock: reads the row"),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(PGLOCK_READS, PGLOCK, REDIS_READS, REDIS),
    targets=(
        Target("at least 0.6 x django-pglock with the same work", OCCUPY, "us", 0.6, least=True, beside=PGLOCK_READS),
        Target("lock alone: at least 0.6 x django-pglock's", LOCK, "us", 0.6, least=True, beside=PGLOCK),
        Target("lock alone: at least 2 x django-redis'", REDIS_LOCK, "us", 2.0, least=True, beside=REDIS),
    ),
    stage=site.stage,
)
