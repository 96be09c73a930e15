"""doctor: is this server fit to keep locks?"""

import time
from typing import Any

from interlock._redis.message import Message
from interlock._redis.resp import pack
from interlock.core.claims import Check
from interlock.core.effects import Ask, Op
from interlock.core.errors import LockError
from interlock.stores.redis.clocks import compare_clocks
from interlock.stores.redis.views import nodes_of

SKEW = 1.0  # seconds that two clocks may differ without a word
ROUNDS = 5
FORBIDDEN = (
    "the access list forbids INFO: nothing is known about the server, and that another primary took its place is not "
    "noticed by a new connection"
)


def examine(pool: Any) -> Op[list[Check]]:
    """Look at a server's version, round trip, clock, memory policy, persistence and replicas."""
    checks = []
    try:
        nodes = yield from nodes_of(pool)
        for node in nodes:
            checks += yield from _server(pool, node)
        checks += yield from compare_clocks(pool, nodes)
    except LockError as error:
        checks.append(Check("server", "fail", str(error)))
    return checks


def _server(pool: Any, node: str) -> Op[list[Check]]:
    times = []
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        seconds, micros = yield Ask(pool, Message(pack("TIME"), node))
        times.append(time.perf_counter() - sent)
    skew = time.time() - int(seconds) - int(micros) / 1e6
    try:
        about = _parsed((yield Ask(pool, Message(pack("INFO"), node))))
    except LockError:
        about = {}  # the access list may forbid it; nothing depends on it
    return [*_about(about), _clock(skew), Check("server", "ok", f"answers in {min(times) * 1e6:.0f} us")]


def _parsed(text: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def _clock(skew: float) -> Check:
    if abs(skew) <= SKEW:
        return Check("clock", "ok", f"differs from this machine's by {skew * 1000:.0f} ms")
    return Check(
        "clock", "warn",
        f"differs from this machine's by {skew:.1f} s; leases are judged by the server's clock alone, which must not "
        f"jump: if it is set forward by what is left of a lease, two may hold the lock; let NTP slew it, and keep "
        f"the clocks of replicas together",
    )  # fmt: skip


def _about(about: dict[str, str]) -> list[Check]:
    if not about:
        return [Check("version", "warn", FORBIDDEN)]
    name = about.get("server_name", "redis")
    version = about.get("valkey_version") or about.get("redis_version", "?")
    checks = [Check("version", "ok", f"{name} {version}")]
    if about.get("role", "master") != "master":
        checks.append(Check("role", "fail", "this is a replica: connect to the primary"))
    policy = about.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and about.get("maxmemory", "0") != "0":
        checks.append(
            Check("memory", "fail", f"maxmemory-policy is {policy}: the server may evict held locks; set noeviction")
        )
    if about.get("aof_enabled", "0") == "0":
        checks.append(
            Check(
                "persistence", "warn",
                "appendonly is off: a restart of the server forgets held locks, whose holders learn it at their next "
                "renewal; give the resource the fence",
            )
        )  # fmt: skip
    return checks
