"""Acquire and release of one name on Redis by one process, without contention."""

from __future__ import annotations

from bench.contestants import needs, redis_locks, redis_peers
from bench.contestants.redis_raw import SetNx
from bench.contestants.redis_server import stage
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import pairs

CALLS, WITH, TASKS = "interlock", "interlock with", "interlock asyncio"
PEER, LIMIT = Beside(redis_peers.REDIS_PY), Beside("raw SET NX + EVALSHA")
ASYNC_PEER = Beside("redis.asyncio")


def targets(ours: str) -> tuple[Target, ...]:
    """The targets for one of our blocking contestants."""
    return (
        Target("at least 3 x redis-py's Lock", ours, "us", 3.0, least=True, beside=PEER),
        Target("at least 0.6 x the raw socket", ours, "us", 0.6, least=True, beside=LIMIT),
    )


OURS = (
    Contestant(
        CALLS, pairs.calls(redis_locks.interlock_redis), needs.interlock_redis, "ours", "acquire(), release()"
    ),
    Contestant(WITH, pairs.withs(redis_locks.interlock_redis), needs.interlock_redis, "ours", "with lock: pass"),
    Contestant(
        TASKS,
        pairs.awaits(redis_locks.interlock_redis_async),
        needs.interlock_redis,
        "ours",
        "await acquire(), await release()",
    ),
)
PEERS = (
    *redis_peers.contestants(lambda opener: pairs.calls(redis_peers.one(opener))),
    Contestant(ASYNC_PEER.peer, pairs.awaits(redis_locks.redis_py_async()), needs.redis),
    *(Contestant(p.name, pairs.awaits(p.opener), p.needs, notes="asyncio") for p in redis_peers.ASYNC_PEERS),
)
LIMITS = (Contestant(LIMIT.peer, pairs.calls(SetNx), role="limit", notes="a blocking socket, packed bytes"),)

SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="redis_uncontended",
    title="Uncontended acquire+release of one name on Redis, one process",
    groups=frozenset({"redis"}),
    contestants=(*OURS, *PEERS, *LIMITS),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(PEER, ASYNC_PEER, LIMIT),
    targets=(
        *targets(CALLS),
        *targets(WITH),
        Target("ahead of redis.asyncio's Lock", TASKS, "us", 1.0, least=True, beside=ASYNC_PEER),
    ),
    stage=stage,
)
