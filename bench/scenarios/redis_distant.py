"""Acquire and release of one name on Redis that is 1 ms away: what looking for the reply before sleeping costs there.

The delay is made by a proxy, which takes a processor of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from bench.contestants import needs, redis_locks
from bench.model import Beside, Contestant, Facts, Metric, Raw, Scenario, Seat, Target, Unavailable
from bench.scenarios import pairs

DELAY = 0.001  # seconds
UNLOOKING = Beside("interlock, no look")
CALLS = pairs.calls(redis_locks.interlock_redis)


def work(contestant: Contestant[pairs.Batch], seat: Seat) -> Raw:
    """Time slices of about a tenth of the budget each, and the processor time in them; the median slice counts."""
    batch = contestant.make(seat.place)
    batch(3)
    times = pairs.calibrated(batch, seat.seconds / pairs.SLICES)
    slices = [timed(batch, times) for _ in range(pairs.SLICES)]
    return {key: median(took[index] for took in slices) / times * 1e6 for index, key in enumerate(("cpu", "us"))}


def timed(batch: pairs.Batch, times: int) -> tuple[float, float]:
    """Seconds of processor time that a batch takes, and seconds."""
    busy = time.process_time()
    took = pairs.timed(batch, times)
    return time.process_time() - busy, took


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return raw


@contextmanager
def stage() -> Iterator[Facts]:
    """A server behind a proxy that delays each reply."""
    from tests.servers import Missing, Proxy, RedisServer

    with ExitStack() as closing:
        try:
            server = closing.enter_context(RedisServer("valkey"))
        except Missing as missing:
            raise Unavailable(str(missing)) from missing
        proxy = closing.enter_context(Proxy(server.host, server.port))
        proxy.delay(DELAY)
        yield {"url": proxy.url}


SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="redis_distant",
    title=f"Uncontended acquire+release of one name on Redis, {1000 * DELAY:g} ms away",
    groups=frozenset({"redis"}),
    contestants=(
        Contestant("interlock", CALLS, needs.interlock_redis, "ours", "looks for a reply before it sleeps"),
        Contestant(
            UNLOOKING.peer, redis_locks.without_look(CALLS), needs.interlock_redis, "limit", "sleeps at once"
        ),
        Contestant("redis-py", pairs.calls(redis_locks.redis_py()), needs.redis),
    ),
    metrics=(Metric("cpu", "CPU µs per pair"), Metric("us", "µs per pair")),
    work=work,
    fold=fold,
    beside=(UNLOOKING,),
    targets=(
        Target("looking costs less than a tenth", "interlock", "cpu", 0.9, least=True, beside=UNLOOKING),
    ),
    stage=stage,
)  # fmt: skip
