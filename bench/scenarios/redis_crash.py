"""A holder is killed while another process waits for its lock on Redis; its lease is one second.

Measured from just before the kill to the return of `acquire()` in the waiter. How long the holder has had the
lock differs from crash to crash, spread evenly over a renewal interval, so that the lease is now fresh, now old.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from bench.contestants import needs, redis_locks, redis_peers
from bench.contestants.locks import Lock
from bench.contestants.redis_server import stage
from bench.model import Beside, Contestant, Metric, Place, Raw, Scenario, Seat, Target
from bench.scenarios.handover import spread_evenly

TTL = 1.0  # seconds of lease
SETTLE = 0.2  # seconds until the waiter waits for certain
WAIT_LIMIT = 30.0  # seconds that a holder may take to start

# A holder made by fork would carry the waiter's connections.
PROCESSES = multiprocessing.get_context("spawn")


def hold(name: str, folder: Path, lock_name: str, facts: dict[str, str], pipe: Connection) -> None:
    """Take the lock, say so, and hold it until killed: the target of the holder's process."""
    with ExitStack() as closing:
        lock = SCENARIO.contestant(name).make(Place(folder, lock_name, facts, closing))
        lock.acquire()
        pipe.send(True)
        try:
            pipe.recv()
        except EOFError:  # the waiter has gone
            lock.release()


def work(contestant: Contestant[Lock], seat: Seat) -> Raw:
    """Let one holder after the other crash."""
    lock = contestant.make(seat.place)
    lock.acquire()
    lock.release()
    crashes = max(1, round(2 * seat.seconds))
    passed = [crash(contestant, lock, seat, number) for number in range(crashes)]
    return {
        "s": median(passed),
        "worst": max(passed),
        "early": float(sum(one < 0 for one in passed)),
        "count": float(crashes),
    }


def crash(contestant: Contestant[Lock], lock: Lock, seat: Seat, number: int) -> float:
    """Seconds from the crash of a holder to the lock; below 0 if it was given away before."""
    here, there = PROCESSES.Pipe()
    place = seat.place
    holder = PROCESSES.Process(
        target=hold, args=(contestant.name, place.folder, place.name, dict(place.facts), there)
    )
    holder.start()
    there.close()
    moments: list[float] = []

    def kill() -> None:
        moments.append(time.monotonic())
        holder.kill()

    try:
        if not here.poll(WAIT_LIMIT):
            raise TimeoutError("the holder has not got the lock")
        here.recv()
        killer = threading.Timer(SETTLE + spread_evenly(number, seat.round) * TTL / 3, kill)
        killer.start()
        lock.acquire()
        had = time.monotonic()
        killer.join()
        lock.release()
    finally:
        holder.kill()
        holder.join()
        here.close()
    return had - moments[0]


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return raw


THREADS, TASKS = "interlock", "interlock asyncio"
OURS = (
    Contestant(THREADS, redis_locks.interlock_redis, needs.interlock_redis, "ours"),
    Contestant(TASKS, redis_locks.in_loop(redis_locks.interlock_redis_async), needs.interlock_redis, "ours"),
)

SCENARIO: Scenario[Lock] = Scenario(
    key="redis_crash",
    title=f"A holder with a lease of {TTL:g} s on Redis is killed; a waiter in another process gets the lock",
    groups=frozenset({"redis"}),
    contestants=(
        *OURS,
        *redis_peers.contestants(redis_peers.one, "redis-py, tuned"),
    ),
    metrics=(
        Metric("s", "median s"),
        Metric("worst", "worst s"),
        Metric("early", "before the crash", "low", "sum"),
        Metric("count", "crashes", "-", "sum"),
    ),
    work=work,
    fold=fold,
    beside=(Beside(redis_peers.REDIS_PY),),
    targets=(
        *(Target("a waiter has it within 1.3 s", one.name, "worst", 1.3) for one in OURS),
        *(Target("never before the crash", one.name, "early", 0.0) for one in OURS),
    ),
    stage=stage(ttl=f"{TTL:g}"),
)
