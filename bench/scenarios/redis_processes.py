"""8 processes contend for one name on Redis.

Each critical section reads a number in a plain file, yields the processor for a moment, and writes it back. Then the
processes queue up one by one while the first of them holds the lock: the scenario counts those that are served before
one that arrived earlier.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contestants import needs, redis_locks, redis_peers
from bench.contestants.locks import Lock, NoLock
from bench.contestants.redis_raw import BlpopToken, SetNxBlpop
from bench.contestants.redis_server import stage
from bench.figures import out_of_turn
from bench.model import Beside, Contestant, Metric, Raw, Scenario, Seat, Target
from bench.scenarios import processes
from bench.scenarios.processes import PROCESSES, Counter

GAP = 0.02  # seconds between two arrivals, so that a process that wakes late still arrives in order
MOMENT = struct.Struct("<d")


def work(contestant: Contestant[Lock], seat: Seat) -> Raw:
    """Contend until the time is up, then queue up."""
    locks: list[Lock] = []

    def make(place: object) -> Lock:
        del place
        locks.append(contestant.make(seat.place))
        return locks[0]

    raw = processes.work(Contestant(contestant.name, make), seat)
    (lock,) = locks
    for wave in range(max(1, round(2 * seat.seconds))):
        raw[f"place {wave}"] = float(arrive(lock, seat, wave))
    return raw


def arrive(lock: Lock, seat: Seat, wave: int) -> int:
    """Arrive at this process's moment; return how many were served before it.

    The first process holds the lock until all others must have arrived.
    """
    start = seat.place.folder / f"start {wave}"
    served = Counter(seat.place.folder / f"served {wave}")
    if seat.index == 0:
        lock.acquire()
        start.write_bytes(MOMENT.pack(time.monotonic() + GAP))
    seat.together.wait()
    began = began_at(start)
    if seat.index:
        sleep_until(began + seat.index * GAP)
        lock.acquire()
    else:
        sleep_until(began + PROCESSES * GAP)
    before = served.read()
    served.increase()
    lock.release()
    seat.together.wait()
    return before


def began_at(start: Path) -> float:
    """The moment that the first process has written."""
    return float(MOMENT.unpack(start.read_bytes())[0])


def sleep_until(moment: float) -> None:
    """Sleep until a moment of the monotonic clock, which all processes share."""
    time.sleep(max(0.0, moment - time.monotonic()))


def fold(raws: Sequence[Raw]) -> Raw:
    """Combine the results of the processes; the arrivals of each wave in the order of service."""
    waves = [key for key in raws[0] if key.startswith("place ")]
    orders = [sorted(range(len(raws)), key=lambda index: raws[index][wave]) for wave in waves]
    return processes.fold(raws) | {"out_of_turn": float(sum(map(out_of_turn, orders)))}


OURS, PEER, LIMIT = "interlock", Beside(redis_peers.REDIS_PY), Beside("raw SET NX + BLPOP")
SCENARIO: Scenario[Lock] = Scenario(
    key="redis_processes",
    title=f"{PROCESSES} processes contend for one name on Redis",
    groups=frozenset({"redis"}),
    contestants=(
        Contestant(OURS, redis_locks.interlock_redis, needs.interlock_redis, "ours"),
        *redis_peers.contestants(redis_peers.one),
        Contestant("raw BLPOP token", BlpopToken, role="limit", notes="no lock: the token dies with its holder"),
        Contestant(LIMIT.peer, SetNxBlpop, role="limit", notes="a signal, then one more try; not fair"),
        Contestant("no lock", NoLock, role="control", notes="must lose updates"),
    ),
    metrics=(
        Metric("rate", "sections/s", "high"),
        Metric("cpu", "CPU µs per section"),
        Metric("lost", "lost updates", "low", "sum"),
        Metric("mean_wait", "mean wait µs"),
        Metric("longest", "longest / mean wait"),
        Metric("least", "least busy, % of share", "high"),
        Metric("out_of_turn", "out of turn", "low", "sum"),
    ),
    work=work,
    fold=fold,
    workers=PROCESSES,
    beside=(PEER, LIMIT),
    targets=(
        Target("at least 2 x redis-py's Lock", OURS, "rate", 2.0, least=True, beside=PEER),
        Target("at least level with SET NX + BLPOP", OURS, "rate", 1.0, least=True, beside=LIMIT),
        Target("first come first served: nobody out of turn", OURS, "out_of_turn", 0.0),
        Target("no lost update", OURS, "lost", 0.0),
    ),
    stage=stage,
)
