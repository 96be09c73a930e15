"""Acquire and release of one name in memory, without contention."""

from __future__ import annotations

from bench.contestants import locks, needs
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import pairs

OURS = (
    Contestant("interlock", pairs.calls(locks.interlock_memory), needs.interlock, "ours", "acquire(), release()"),
    Contestant("interlock with", pairs.withs(locks.interlock_memory), needs.interlock, "ours", "with lock: pass"),
    Contestant(
        "interlock asyncio",
        pairs.awaits(locks.interlock_memory_async),
        needs.interlock,
        "ours",
        "await acquire(), await release()",
    ),
)

SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="memory",
    title="Uncontended acquire+release in memory, one process",
    groups=frozenset({"memory"}),
    contestants=(
        *OURS,
        Contestant("threading.Lock", pairs.calls(locks.threading_lock), role="limit"),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(Beside("threading.Lock"),),
    targets=tuple(Target("under 15 µs for acquire+release", one.name, "us", 15.0) for one in OURS),
)
