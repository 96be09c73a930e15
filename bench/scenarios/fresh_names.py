"""Acquire and release of a new name each time, on files, without contention."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace

from bench.contestants import locks, needs
from bench.contestants.locks import Flock, Lock
from bench.model import Beside, Contestant, Place, Scenario, Target
from bench.scenarios import pairs

OURS, PEER, SMALL = "interlock", Beside("fasteners"), Beside("filelock")


def fresh(make: Callable[[Place], Lock]) -> Callable[[Place], pairs.Batch]:
    """A lock object of a peer for each name."""
    return lambda place: taken_once(lambda name: make(replace(place, name=name)))


def ours(place: Place) -> pairs.Batch:
    """Our locks, all from one connection."""
    import interlock

    return taken_once(place.closing.enter_context(interlock.connect(place.folder)).lock)


def taken_once(lock_of: Callable[[str], Lock]) -> pairs.Batch:
    """Take and release the lock of a new name each time."""
    names = map(str, itertools.count())

    def batch(times: int) -> None:
        for name in itertools.islice(names, times):
            lock = lock_of(name)
            lock.acquire()
            lock.release()

    return batch


class NewFile(Flock):
    """flock(2) on a new file, which is closed again: the least possible cost."""

    def release(self) -> None:
        """Close the file."""
        os.close(self._fd)


SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="fresh_names",
    title="Uncontended acquire+release of a new name each time on files, one process",
    groups=frozenset({"files"}),
    contestants=(
        Contestant(OURS, ours, needs.interlock, "ours"),
        Contestant(SMALL.peer, fresh(locks.filelock_lock), needs.module("filelock")),
        Contestant(PEER.peer, fresh(locks.fasteners_lock), needs.module("fasteners")),
        Contestant("flock on a new file", fresh(NewFile), role="limit", notes="system calls only"),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(SMALL, PEER),
    targets=(Target("at least 0.8 x fasteners", OURS, "us", 0.8, least=True, beside=PEER),),
)
