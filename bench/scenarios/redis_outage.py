"""One process holds 500 locks on a Cluster that is 10 ms away, and one of the three nodes stops.

The time of a measurement is ten times the `--seconds`: for a minute, `--seconds 6 --rounds 1`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.contestants import needs
from bench.contestants.redis_leases import Holder, Tasks, Threads
from bench.model import Contestant, Facts, Metric, Place, Raw, Scenario, Seat, Target, Unavailable

LEASES = 500
TTL = 6.0  # seconds; shorter where the measurement is
LONGER = 10.0
DELAY = 0.01  # seconds
MARGIN = 0.2  # seconds after the deadline by which a loss is told


def work(contestant: Contestant[Holder], seat: Seat) -> Raw:
    """Hold many, stop a node, and see who was told of a loss, and when."""
    length = LONGER * seat.seconds
    ttl = min(TTL, max(0.6, length / 5))
    holder = contestant.make(seat.place)
    heard: dict[str, float] = {}
    names = [f"{seat.place.folder.name}:{seat.round}:{number}" for number in range(LEASES)]
    theirs = {name for name in names if _lives_there(seat.place, name)}

    def tell(name: str) -> None:
        heard[name] = time.monotonic()

    holder.hold(names, ttl, tell)
    holder.start()
    process = int(seat.place.facts["process"])
    try:
        time.sleep(length / 4)
        os.kill(process, signal.SIGSTOP)
        time.sleep(max(length * 3 / 4, 1.5 * ttl))
        deadlines = holder.deadlines()
        figures = {
            "late": max((moment - deadlines[name] for name, moment in heard.items()), default=0.0),
            "others": float(len(heard.keys() - theirs)),
            "untold": float(len(theirs - heard.keys())),
            "held": float(holder.held()),
            "there": float(len(theirs)),
        }
    finally:
        os.kill(process, signal.SIGCONT)
        holder.close()
    time.sleep(3.0)  # the others have found it dead, and find it again
    return figures


def _lives_there(place: Place, name: str) -> bool:
    from binascii import crc_hqx

    first, last = int(place.facts["first"]), int(place.facts["last"])
    return first <= crc_hqx(f":{name}".encode(), 0) % 16_384 <= last


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return raw


@contextmanager
def stage() -> Iterator[Facts]:
    """A Cluster behind proxies, and what is to be known of the node that stops."""
    from tests.servers import DistantCluster, Missing

    try:
        cluster = DistantCluster(DELAY)
    except Missing as missing:
        raise Unavailable(str(missing)) from missing
    with cluster:
        node = cluster.cluster.nodes[1]
        first, last = cluster.slots_of(node)
        process = str(node.pid)
        yield {"cluster": cluster.url, "process": process, "first": str(first), "last": str(last)}


def _of(kind: Callable[[Place, str], Holder]) -> Callable[[Place], Holder]:
    return lambda place: kind(place, "cluster")


OURS = (
    Contestant("interlock", _of(Threads), needs.interlock_redis, "ours"),
    Contestant("interlock asyncio", _of(Tasks), needs.interlock_redis, "ours"),
)

SCENARIO: Scenario[Holder] = Scenario(
    key="redis_outage",
    title=f"One process holds {LEASES} locks on three nodes, {1000 * DELAY:g} ms away; one node stops",
    groups=frozenset({"leases"}),
    contestants=OURS,
    metrics=(
        Metric("late", "told at most s after the deadline"),
        Metric("others", "lost on the other nodes", "low", "sum"),
        Metric("untold", "lost there and not told", "low", "sum"),
        Metric("held", "held in the end", "high"),
        Metric("there", "were on the node", "-"),
    ),
    work=work,
    fold=fold,
    targets=(
        *(Target("each is told by its deadline + 0.2 s", one.name, "late", MARGIN) for one in OURS),
        *(Target("none is lost on the other nodes", one.name, "others", 0.0) for one in OURS),
        *(Target("each that is lost is told", one.name, "untold", 0.0) for one in OURS),
    ),
    stage=stage,
)
