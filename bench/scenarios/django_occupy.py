"""The lock of a row in a Django project on PostgreSQL, in one process without contention."""

from __future__ import annotations

from functools import partial

from bench.contestants import django_site as site
from bench.contestants import needs
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import pairs

OCCUPY, LOCK = "interlock occupy", "interlock lock"
REDIS_OCCUPY, REDIS_LOCK = "interlock occupy, Redis", "interlock lock, Redis"
PGLOCK, PGLOCK_READS = Beside("django-pglock"), Beside("django-pglock, reads")
REDIS, REDIS_READS = Beside("django-redis"), Beside("django-redis, reads")

ours = needs.module("interlock.django.row_lock", install="-e .[django]")
pglock = needs.module("pglock", install="django-pglock")
cache = needs.module("django_redis", install="django-redis")
SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="django_occupy",
    title="Uncontended lock of a row in a Django project on PostgreSQL, one process",
    groups=frozenset({"django"}),
    contestants=(
        Contestant(OCCUPY, site.blocks(site.our_row), ours, "ours", notes="the SQL store; reads the row"),
        Contestant(LOCK, site.blocks(site.our_lock), ours, "ours", notes="the SQL store; the lock alone"),
        Contestant(REDIS_OCCUPY, site.blocks(partial(site.our_row, "redis")), ours, "ours", notes="reads the row"),
        Contestant(REDIS_LOCK, site.blocks(partial(site.our_lock, "redis")), ours, "ours", notes="the lock alone"),
        Contestant(PGLOCK_READS.peer, site.blocks(site.reads(site.pg_lock)), pglock, notes="refresh_from_db"),
        Contestant(PGLOCK.peer, site.blocks(site.pg_lock), pglock, notes="advisory lock alone"),
        Contestant(REDIS_READS.peer, site.blocks(site.reads(site.redis_lock)), cache, notes="refresh_from_db"),
        Contestant(REDIS.peer, site.blocks(site.redis_lock), cache, notes="cache.lock, which is redis-py's"),
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
