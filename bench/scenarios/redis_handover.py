"""Two processes pass one lock on Redis to each other; measured as on files."""

from __future__ import annotations

from bench.contestants import needs, redis_locks, redis_peers
from bench.contestants.redis_raw import BlpopToken, SetNxBlpop
from bench.contestants.redis_server import stage
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import handover
from bench.scenarios.handover import awaiting, blocking

LIMIT = Beside("raw BLPOP token")
THREADS, TASKS = "interlock", "interlock asyncio"

OURS = (
    Contestant(THREADS, blocking(redis_locks.interlock_redis), needs.interlock_redis, "ours"),
    Contestant(TASKS, awaiting(redis_locks.interlock_redis_async), needs.interlock_redis, "ours"),
)
PEERS = (
    *redis_peers.contestants(lambda opener: blocking(redis_peers.one(opener))),
    Contestant(
        "redis.asyncio", awaiting(redis_locks.redis_py_async()), needs.redis, notes="looks every 100 ms", poll=0.1
    ),
    *(
        Contestant(peer.name, awaiting(peer.opener), peer.needs, notes=peer.waits, poll=peer.poll)
        for peer in redis_peers.ASYNC_PEERS
    ),
)
LIMITS = (
    Contestant(LIMIT.peer, blocking(BlpopToken), role="limit", notes="no lock: the token dies with its holder"),
    Contestant("raw SET NX + BLPOP", blocking(SetNxBlpop), role="limit", notes="a signal, then one more try"),
)

SCENARIO: Scenario[handover.Player] = Scenario(
    key="redis_handover",
    title="Hand-over to a waiting process on Redis",
    groups=frozenset({"redis"}),
    contestants=(*OURS, *PEERS, *LIMITS),
    metrics=handover.METRICS,
    work=handover.work,
    fold=handover.fold,
    workers=2,
    beside=(LIMIT, Beside(redis_peers.REDIS_PY)),
    targets=(
        Target("median at most 1.6 x BLPOP's (level is 1, so at least 1/1.6)", THREADS, "us", 1 / 1.6, True, LIMIT),
        Target("median at most 1 ms", TASKS, "us", 1000.0),
    ),
    stage=stage,
)
