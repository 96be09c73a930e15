"""One process holds 10,000 locks on servers that are 10 ms away.

The proxies that make the way long take a processor of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.contestants import needs
from bench.contestants.redis_leases import Holder, RedisPy, Tasks, Threads
from bench.model import Contestant, Facts, Metric, Place, Raw, Scenario, Seat, Target, Unavailable

LEASES = 10_000  # for a measurement of a second or more; fewer for a shorter one
TTL = 6.0  # seconds, likewise
LEAST = 0.1  # of both
WATCHED = 2.0  # leases that pass while it is counted
DELAY = 0.01  # seconds


def work(contestant: Contestant[Holder], seat: Seat) -> Raw:
    """Hold many, and see how many are held after a while."""
    scale = min(1.0, max(LEAST, seat.seconds))
    leases, ttl = round(LEASES * scale), TTL * scale
    holder = contestant.make(seat.place)
    names = [f"{seat.place.folder.name}:{seat.round}:{number}" for number in range(leases)]
    lost: list[str] = []
    holder.hold(names, ttl, lost.append)
    holder.start()
    time.sleep(max(WATCHED * ttl, seat.seconds))
    figures = {"rate": holder.rate(), "held": 100 * holder.held() / leases, "leases": float(leases)}
    holder.close()
    return figures


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return raw


@contextmanager
def stage() -> Iterator[Facts]:
    """A server and a Cluster, each behind proxies."""
    from tests.servers import DistantCluster, Missing, Proxy, RedisServer

    with ExitStack() as closing:
        try:
            server = closing.enter_context(RedisServer("valkey"))
            cluster = closing.enter_context(DistantCluster(DELAY))
        except Missing as missing:
            raise Unavailable(str(missing)) from missing
        proxy = closing.enter_context(Proxy(server.host, server.port))
        proxy.delay(DELAY)
        yield {"server": proxy.url, "cluster": cluster.url}


def _of(kind: Callable[[Place, str], Holder], where: str) -> Callable[[Place], Holder]:
    return lambda place: kind(place, where)


OURS = tuple(
    Contestant(f"{name}, {words}", _of(kind, where), needs.interlock_redis, "ours")
    for where, words in (("server", "one server"), ("cluster", "three nodes"))
    for name, kind in (("interlock", Threads), ("interlock asyncio", Tasks))
)
PEERS = tuple(
    Contestant(f"redis-py, {words}", _of(RedisPy, where), needs.redis, notes="one call for each key")
    for where, words in (("server", "one server"), ("cluster", "three nodes"))
)

SCENARIO: Scenario[Holder] = Scenario(
    key="redis_leases",
    title=f"One process holds {LEASES:,} locks with leases of {TTL:g} s, {1000 * DELAY:g} ms away",
    groups=frozenset({"leases"}),
    contestants=(*OURS, *PEERS),
    metrics=(
        Metric("rate", "renewed per second", "high"),
        Metric("held", "% held in the end", "high"),
        Metric("leases", "leases", "-"),
    ),
    work=work,
    fold=fold,
    targets=tuple(Target("all are held", one.name, "held", 100.0, least=True) for one in OURS),
    stage=stage,
)
