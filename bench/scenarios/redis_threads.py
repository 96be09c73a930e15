"""16 threads of one process contend for one name on Redis; measured as on files."""

from __future__ import annotations

from bench.contestants import locks, needs, redis_locks, redis_peers
from bench.contestants.redis_raw import SetNxBlpop
from bench.contestants.redis_server import stage
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import threads
from bench.scenarios.threads import ONE, OWN, THREADS

PEER = Beside(redis_peers.PYTHON_REDIS_LOCK)
OURS = (
    Contestant("interlock", redis_locks.interlock_redis_own, needs.interlock_redis, "ours", OWN),
    Contestant("interlock, shared", locks.shared(redis_locks.interlock_redis), needs.interlock_redis, "ours", ONE),
)

SCENARIO: Scenario[threads.Opener] = Scenario(
    key="redis_threads",
    title=f"{THREADS} threads of one process contend for one name on Redis",
    groups=frozenset({"redis"}),
    contestants=(
        *OURS,
        *redis_peers.contestants(lambda opener: opener),
        Contestant("raw SET NX + BLPOP", locks.own(SetNxBlpop), role="limit", notes="a socket per thread"),
        Contestant("no lock", locks.shared(locks.NoLock), role="control", notes="must lose updates"),
    ),
    metrics=threads.SCENARIO.metrics,
    work=threads.work,
    fold=threads.fold,
    beside=(PEER,),
    targets=(
        *(Target("at least 4 x python-redis-lock", one.name, "rate", 4.0, least=True, beside=PEER) for one in OURS),
        *(Target("no lost update", one.name, "lost", 0.0) for one in OURS),
    ),
    stage=stage,
)
