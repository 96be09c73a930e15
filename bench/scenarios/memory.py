"""Acquire and release of one name in memory, without contention."""

from __future__ import annotations

import asyncio

from bench.contestants import locks, needs
from bench.contestants.locks import AsyncLock
from bench.model import Beside, Contestant, Place, Scenario, Target
from bench.scenarios import pairs


class AsyncioLock:
    """asyncio.Lock, with the same interface as the others: its own release is not a coroutine."""

    def __init__(self, place: Place) -> None:
        del place
        self._lock = asyncio.Lock()

    async def acquire(self) -> None:
        """Wait for the lock."""
        await self._lock.acquire()

    async def release(self) -> None:
        """Give it back."""
        self._lock.release()


def asyncio_lock(place: Place) -> AsyncLock:
    """The standard library's lock between tasks: the limit."""
    return AsyncioLock(place)


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
        Contestant("asyncio.Lock", pairs.awaits(asyncio_lock), role="limit", notes="with one wrapper coroutine"),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(Beside("threading.Lock"), Beside("asyncio.Lock")),
    targets=tuple(Target("under 15 µs for acquire+release", one.name, "us", 15.0) for one in OURS),
)
