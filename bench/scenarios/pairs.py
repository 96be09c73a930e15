"""Timing of uncontended pairs of acquire and release, for several scenarios."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from statistics import median

from bench.contestants.locks import AsyncLock, Lock
from bench.model import Contestant, Metric, Place, Raw, Seat

Batch = Callable[[int], object]
"""Takes and releases the lock that many times."""

SLICES = 10
METRICS = (Metric("us", "µs per pair"), Metric("per_second", "pairs/s", "high"))


def calls(make: Callable[[Place], Lock]) -> Callable[[Place], Batch]:
    """acquire() and release()."""

    def build(place: Place) -> Batch:
        lock = make(place)
        acquire, release = lock.acquire, lock.release

        def batch(times: int) -> None:
            for _ in range(times):
                acquire()
                release()

        return batch

    return build


def withs(make: Callable[[Place], Lock]) -> Callable[[Place], Batch]:
    """`with lock: pass`."""

    def build(place: Place) -> Batch:
        lock = make(place)

        def batch(times: int) -> None:
            for _ in range(times):
                with lock:  # type: ignore[attr-defined]
                    pass

        return batch

    return build


def awaits(make: Callable[[Place], AsyncLock]) -> Callable[[Place], Batch]:
    """await acquire() and await release(), one loop for all of them."""

    def build(place: Place) -> Batch:
        runner = place.closing.enter_context(asyncio.Runner())

        async def opened() -> AsyncLock:
            return make(place)

        lock = runner.run(opened())

        async def batch(times: int) -> None:
            for _ in range(times):
                await lock.acquire()
                await lock.release()

        return lambda times: runner.run(batch(times))

    return build


def work(contestant: Contestant[Batch], seat: Seat) -> Raw:
    """Time slices of about a tenth of the duration each; the median slice counts."""
    batch = contestant.make(seat.place)
    batch(3)
    times = calibrated(batch, seat.seconds / SLICES)
    return {"us": median(timed(batch, times) for _ in range(SLICES)) / times * 1e6}


def calibrated(batch: Batch, seconds: float) -> int:
    """The number of pairs that take that many seconds."""
    times = 1
    while True:
        took = timed(batch, times)
        if took >= seconds / 4:
            return max(1, int(times * seconds / took))
        times *= 2


def timed(batch: Batch, times: int) -> float:
    """Seconds that a batch takes."""
    start = time.perf_counter()
    batch(times)
    return time.perf_counter() - start


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures; add the rate."""
    (raw,) = raws
    return {"us": raw["us"], "per_second": 1e6 / raw["us"]}
