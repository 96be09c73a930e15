"""Acquire and release of one name on files by one process, without contention."""

from __future__ import annotations

from bench.contestants import locks, needs
from bench.contestants.locks import Flock
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import pairs

BESIDE = (Beside("filelock"), Beside("fasteners"))
CALLS, WITH = "interlock", "interlock with"


def targets(ours: str) -> tuple[Target, ...]:
    """The targets for one of our contestants."""
    four, level = BESIDE
    return (
        Target("at least 4 x filelock's FileLock", ours, "us", 4.0, least=True, beside=four),
        Target("at least level with fasteners' InterProcessLock", ours, "us", 1.0, least=True, beside=level),
    )


SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="uncontended",
    title="Uncontended acquire+release of one name on files, one process",
    groups=frozenset({"files"}),
    contestants=(
        Contestant(CALLS, pairs.calls(locks.interlock_file), needs.interlock, "ours", "acquire(), release()"),
        Contestant(WITH, pairs.withs(locks.interlock_file), needs.interlock, "ours", "with lock: pass"),
        Contestant(
            "interlock asyncio",
            pairs.awaits(locks.interlock_file_async),
            needs.interlock,
            "ours",
            "await acquire(), await release()",
        ),
        Contestant("filelock", pairs.calls(locks.filelock_lock), needs.module("filelock")),
        Contestant(
            "filelock asyncio",
            pairs.awaits(locks.filelock_async),
            needs.module("filelock", "AsyncFileLock"),
            notes="AsyncFileLock: a thread of the executor",
        ),
        Contestant("fasteners", pairs.calls(locks.fasteners_lock), needs.module("fasteners")),
        Contestant("portalocker", pairs.calls(locks.portalocker_lock), needs.module("portalocker")),
        Contestant("flock on an open file", pairs.calls(Flock), role="limit", notes="system calls only"),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=BESIDE,
    targets=targets(CALLS) + targets(WITH),
)
