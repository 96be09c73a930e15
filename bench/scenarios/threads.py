"""16 threads of one process contend for one name.

Each critical section reads a counter that nothing else protects, sometimes yields the interpreter for a moment, and
writes it back. The order is measured between processes (`redis_processes`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from bench.contestants import locks, needs
from bench.contestants.locks import Flock, Lock, NoLock
from bench.figures import waits
from bench.model import Beside, Contestant, Metric, Raw, Scenario, Seat, Target

THREADS = 16
GIVE_AWAY = 8  # every eighth section yields; in all of them it would hide the cost of the locks

Section = tuple[float, float]
"""When a thread asked for the lock and when it had it, in seconds of the monotonic clock."""
Opener = Callable[[], Lock]
"""Gives a thread its lock object: the shared one or one of its own."""


class Table:
    """The shared state of the threads: the counter, and the log of their sections."""

    def __init__(self) -> None:
        self.counter = 0
        self.sections: list[Section] = []
        self.errors: list[Exception] = []

    def section(self, lock: Lock) -> None:
        """Run one critical section; a lock that raises is recorded, and counts as not obtained."""
        asked = time.monotonic()
        try:
            lock.acquire()
        except Exception as error:
            self.errors.append(error)
            return
        had = time.monotonic()
        value = self.counter
        if value % GIVE_AWAY == 0:
            time.sleep(0)  # another thread may run: without a lock it reads the same value
        self.counter = value + 1
        self.sections.append((asked, had))
        try:
            lock.release()
        except Exception as error:
            self.errors.append(error)


def contend(opener: Opener, table: Table, seconds: float) -> float:
    """Let the threads contend; return the sections for each second."""
    start = threading.Barrier(THREADS + 1)
    ends: list[float] = []

    def body() -> None:
        lock = opener()
        start.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            table.section(lock)
        ends.append(time.monotonic())

    team = [threading.Thread(target=body, daemon=True) for _ in range(THREADS)]
    for thread in team:
        thread.start()
    start.wait()
    began = time.monotonic()
    for thread in team:
        thread.join()
    return len(table.sections) / (max(ends) - began)


def work(contestant: Contestant[Opener], seat: Seat) -> Raw:
    """Contend until the time is up."""
    opener = contestant.make(seat.place)
    warm = opener()
    warm.acquire()
    warm.release()
    table = Table()
    rate = contend(opener, table, seat.seconds)
    if table.errors and contestant.role == "ours":
        raise table.errors[0]
    waited = [had - asked for asked, had in table.sections]
    return {
        "rate": rate,
        "lost": float(len(table.sections) - table.counter),
        "errors": float(len(table.errors)),
        **waits(sum(waited), max(waited), len(waited)),
    }


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return raw


ONE, OWN = "one lock object", "a lock object per thread"
PEERS = ("filelock", "fasteners")
OURS = (
    Contestant("interlock memory", locks.shared(locks.interlock_memory), needs.interlock, "ours", ONE),
    Contestant("interlock file", locks.interlock_file_own, needs.interlock, "ours", OWN),
    Contestant("interlock file, shared", locks.shared(locks.interlock_file), needs.interlock, "ours", ONE),
)

SCENARIO: Scenario[Opener] = Scenario(
    key="threads",
    title=f"{THREADS} threads of one process contend for one name",
    groups=frozenset({"files", "memory"}),
    contestants=(
        *OURS,
        Contestant(PEERS[0], locks.own(locks.filelock_lock), needs.module("filelock"), notes=OWN),
        Contestant("filelock, shared", locks.shared(locks.filelock_lock), needs.module("filelock"), notes=ONE),
        Contestant(PEERS[1], locks.own(locks.fasteners_lock), needs.module("fasteners"), notes=OWN),
        Contestant("fasteners, shared", locks.shared(locks.fasteners_lock), needs.module("fasteners"), notes=ONE),
        Contestant("threading.Lock", locks.shared(locks.threading_lock), role="limit", notes=ONE),
        Contestant("blocking flock", locks.own(Flock), role="limit", notes="an open file per thread"),
        Contestant("no lock", locks.shared(NoLock), role="control", notes="must lose updates"),
    ),
    metrics=(
        Metric("rate", "sections/s", "high"),
        Metric("lost", "lost updates", "low", "sum"),
        Metric("errors", "errors", "low", "sum"),
        Metric("mean_wait", "mean wait µs"),
        Metric("longest", "longest / mean wait"),
    ),
    work=work,
    fold=fold,
    beside=tuple(Beside(peer) for peer in PEERS),
    targets=(
        *(Target("at least 5,000 sections/s", one.name, "rate", 5000.0, least=True) for one in OURS),
        *(Target("no lost update", one.name, "lost", 0.0) for one in OURS),
    ),
)
