"""The clocks of all servers that may come to judge a lease, compared: of primaries and their replicas."""

import re
import time
from typing import Any

from interlock._redis.message import Message
from interlock._redis.primary import IDENTITY
from interlock._redis.resp import pack
from interlock.core.claims import DEFAULT_TTL, MIN_TTL, Check
from interlock.core.effects import Ask, Op
from interlock.core.errors import LockError

SKEW = 1.0  # seconds by which clocks may differ without a word
BEARS = 3  # a lease is renewed at a third: it bears so much skew
ROUNDS = 3
IO_TIMEOUT = 1.0  # seconds to wait for a replica
_REPLICA = re.compile(rb"^slave\d+:ip=([^,]+),port=(\d+)", re.MULTILINE)


def compare_clocks(pool: Any, nodes: list[str]) -> Op[list[Check]]:
    """Say how far the clocks of the servers differ, and which leases bear it when one takes another's place.

    Args:
        pool: to the servers.
        nodes: what stands for each primary, in the place of a line.
    """
    ahead: dict[str, float] = {}
    unheard: list[str] = []
    for node in nodes:
        ahead[node.lstrip("@") or "the primary"] = yield from _ahead(pool, node)
        for where in (yield from _replicas_of(pool, node)):
            beside = (
                pool.beside(where, IO_TIMEOUT) if hasattr(pool, "beside") else pool
            )  # a cluster reaches all nodes by itself
            try:
                ahead[where] = yield from _ahead(beside, f"@{where}")
            except LockError:
                unheard.append(where)
            finally:
                if beside is not pool:
                    beside.close()
    checks = [] if len(ahead) < 2 else [_judged(ahead)]
    if unheard:
        them = " and ".join(unheard)
        checks.append(Check("clocks", "warn", f"{them} can't be asked from here: compare the clocks by hand"))
    return checks


def _judged(ahead: dict[str, float]) -> Check:
    fast, slow = max(ahead, key=lambda each: ahead[each]), min(ahead, key=lambda each: ahead[each])
    skew = ahead[fast] - ahead[slow]
    safe = max(MIN_TTL, BEARS * skew)
    if skew <= SKEW:
        return Check(
            "clocks", "ok",
            f"{len(ahead)} servers differ by {skew * 1000:.0f} ms: safe for leases of {safe:.1f} s and longer",
        )  # fmt: skip
    return Check(
        "clocks", "fail" if safe > DEFAULT_TTL else "warn",
        f"{fast} is {skew:.1f} s ahead of {slow}: where it takes the other's place, leases end so much too "
        f"early, and two may hold the lock; only leases of {safe:.0f} s and longer, renewed, bear it: let NTP "
        f"keep the clocks together",
    )  # fmt: skip


def _ahead(pool: Any, node: str) -> Op[float]:
    """Return by how many seconds a server's clock is ahead of this machine's; by the shortest of some round trips."""
    best = (float("inf"), 0.0)
    for _ in range(ROUNDS):
        sent = time.time()
        seconds, micros = yield Ask(pool, Message(pack("TIME"), node, io_timeout=IO_TIMEOUT))
        back = time.time()
        best = min(best, (back - sent, int(seconds) + int(micros) / 1e6 - (sent + back) / 2))
    return best[1]


def _replicas_of(pool: Any, node: str) -> Op[list[str]]:
    """Return the addresses of a primary's replicas; none where the access list forbids INFO."""
    try:
        text = yield Ask(pool, Message(IDENTITY, node))
    except LockError:
        return []
    return [f"{host.decode()}:{int(port)}" for host, port in _REPLICA.findall(text)]
