"""The cost of one turn by the length of the line: the first claim leaves, and another enters at the end.

One process enters all claims through the store, since ten thousand processes would measure the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench.contestants import needs
from bench.contestants.redis_raw import key_of
from bench.contestants.redis_server import stage as redis_stage
from bench.contestants.sql_server import stage as sql_stage
from bench.model import Contestant, Facts, Metric, Place, Raw, Scenario, Seat, Target

LENGTHS = (10, 100, 1_000, 10_000)
TURNS, WARM = 50, 5  # turns at each length; the first ones are a warm-up
MOST_TIMES = 4  # making a line longer may take this many times the duration of a measurement
SHORT = 0.5  # seconds; a shorter measurement uses lines of a hundredth of the length
Line = tuple[Any, Callable[[], Any]]
"""A store, and a function that enters a claim and returns it."""


def line(url: Callable[[Place], str]) -> Callable[[Place], Line]:
    """The line of one name on a store."""

    def build(place: Place) -> Line:
        from interlock.client.connect import open_store
        from interlock.core.claims import SEPARATOR, Claim, LockSpec
        from interlock.runtime._threads import fresh_id

        queue: Any = open_store(url(place)).queue()
        place.closing.callback(queue.close)
        spec = LockSpec(SEPARATOR + key_of(place), ttl=3600.0)

        def enter() -> Any:
            claim = Claim(fresh_id(), spec, "one of many")
            queue.enter(claim, queue.subscribe(), True, False)
            return claim

        return queue, enter

    return build


def work(contestant: Contestant[Line], seat: Seat) -> Raw:
    """Make the line longer, with some turns at each length; there is no figure if that takes too long."""
    store, enter = contestant.make(seat.place)
    claims = [enter()]
    figures: Raw = {}
    for length in LENGTHS:
        until = time.monotonic() + MOST_TIMES * seat.seconds
        while len(claims) <= (length if seat.seconds >= SHORT else length // 100) and time.monotonic() < until:
            claims.append(enter())
        full = time.monotonic() < until
        figures[f"us_{length}"] = turn(store, enter, claims, seat.seconds) if full else math.nan
    return figures


def turn(store: Any, enter: Callable[[], Any], claims: list[Any], seconds: float) -> float:
    """Let the first claim leave and another one enter, repeatedly; return the median in microseconds."""
    took: list[float] = []
    until = time.monotonic() + seconds
    while len(took) < TURNS and (time.monotonic() < until or len(took) <= WARM):
        started = time.perf_counter()
        left = store.leave(claims.pop(0))
        claims.append(enter())
        took.append(time.perf_counter() - started)
        if left is not True:
            raise RuntimeError("the head of the line did not hold the lock")
    return median(took[WARM:]) * 1e6


def fold(raws: Sequence[Raw]) -> Raw:
    """Return the figures of the only worker, with the ratio of the costs in the longest and the shortest line."""
    (raw,) = raws
    return raw | {"growth": raw[f"us_{LENGTHS[-1]}"] / raw[f"us_{LENGTHS[0]}"]}


@contextmanager
def stage() -> Iterator[Facts]:
    """A server of Valkey and one of PostgreSQL."""
    with sql_stage() as sql, redis_stage() as redis:
        yield {**sql, **redis}


REDIS = "redis://"

SCENARIO: Scenario[Line] = Scenario(
    key="growth",
    title="A turn of a line, by the number of claims in it: the head leaves, another one enters",
    groups=frozenset({"growth"}),
    contestants=(
        Contestant("memory://", line(lambda place: "memory://bench"), needs.interlock, "ours"),
        Contestant("file://", line(lambda place: f"file://{place.folder}"), needs.interlock, "ours"),
        Contestant(REDIS, line(lambda place: place.facts["url"]), needs.interlock_redis, "ours"),
        Contestant(
            "postgresql://", line(lambda place: place.facts["postgresql"] + "?create=true"), needs.interlock, "ours"
        ),
    ),
    metrics=(
        *(Metric(f"us_{length}", f"µs, {length:,} in line") for length in LENGTHS),
        Metric("growth", "times, longest line"),
    ),
    work=work,
    fold=fold,
    targets=(Target("a thousandfold line costs at most 4 x", REDIS, "growth", 4.0),),
    stage=stage,
)
