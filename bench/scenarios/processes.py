"""8 processes contend for one name on files.

Each critical section reads a counter in a plain file, yields the processor for a moment, and writes it back.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from typing import Any

from bench.contestants import locks, needs
from bench.contestants.locks import Flock, Lock, NoLock
from bench.figures import waits
from bench.model import Beside, Contestant, Metric, Raw, Scenario, Seat, Target

PROCESSES = int(os.environ.get("BENCH_PROCESSES", "8"))
WARM_UP = 0.1  # seconds
NUMBER = struct.Struct("<q")


class Counter:
    """A number in a file without protection."""

    def __init__(self, path: os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """The number now; 0 in a new file."""
        data = os.pread(self._fd, NUMBER.size, 0)
        return int(NUMBER.unpack(data)[0]) if data else 0

    def increase(self) -> None:
        """Read, wait a moment, write."""
        value = self.read()
        os.sched_yield()
        os.pwrite(self._fd, NUMBER.pack(value + 1), 0)


def warm_up(lock: Lock, seat: Seat) -> None:
    """Contend for a moment without measuring: the first waits of a process open its files and connections."""
    lock.acquire()
    lock.release()
    seat.together.wait()
    until = time.monotonic() + WARM_UP
    while time.monotonic() < until:
        lock.acquire()
        lock.release()


def work(contestant: Contestant[Lock], seat: Seat) -> Raw:
    """Contend until the time is up."""
    lock = contestant.make(seat.place)
    counter = Counter(seat.place.folder / "counter")
    warm_up(lock, seat)
    sections = 0
    total = longest = 0.0
    seat.together.wait()
    began, busy = time.monotonic(), time.process_time()
    until = began + seat.seconds
    while time.monotonic() < until:
        asked = time.monotonic()
        lock.acquire()
        waited = time.monotonic() - asked
        counter.increase()
        lock.release()
        sections += 1
        total += waited
        longest = max(longest, waited)
    ended, busy = time.monotonic(), time.process_time() - busy
    seat.together.wait()
    return {
        "sections": float(sections),
        "total": total,
        "longest": longest,
        "began": began,
        "ended": ended,
        "busy": busy,
        "counter": float(counter.read()),
    }


def fold(raws: Sequence[Raw]) -> Raw:
    """Combine the results of the processes."""
    sections = sum(raw["sections"] for raw in raws)
    took = max(raw["ended"] for raw in raws) - min(raw["began"] for raw in raws)
    return {
        "rate": sections / took,
        "cpu": sum(raw["busy"] for raw in raws) / sections * 1e6 if sections else 0.0,
        "lost": sections - raws[0]["counter"],
        **waits(sum(raw["total"] for raw in raws), max(raw["longest"] for raw in raws), sections),
        "least": 100.0 * PROCESSES * min(raw["sections"] for raw in raws) / sections if sections else 0.0,
    }


OURS = "interlock"
SCENARIO: Scenario[Any] = Scenario(
    key="processes",
    title=f"{PROCESSES} processes contend for one name on files",
    groups=frozenset({"files"}),
    contestants=(
        Contestant(OURS, locks.interlock_file, needs.interlock, "ours"),
        Contestant("filelock", locks.filelock_lock, needs.module("filelock")),
        Contestant("fasteners", locks.fasteners_lock, needs.module("fasteners")),
        Contestant("portalocker", locks.portalocker_lock, needs.module("portalocker")),
        Contestant("blocking flock", Flock, role="limit", notes="on an open file"),
        Contestant("no lock", NoLock, role="control", notes="must lose updates"),
    ),
    metrics=(
        Metric("rate", "sections/s", "high"),
        Metric("cpu", "CPU µs per section"),
        Metric("lost", "lost updates", "low", "sum"),
        Metric("mean_wait", "mean wait µs"),
        Metric("longest", "longest / mean wait"),
        Metric("least", "least busy, % of share", "high"),
    ),
    work=work,
    fold=fold,
    workers=PROCESSES,
    beside=(Beside("filelock"), Beside("fasteners")),
    targets=(
        Target("no lost update", OURS, "lost", 0.0),
        Target("longest wait of any at most 3 x the mean wait", OURS, "longest", 3.0),
    ),
)
