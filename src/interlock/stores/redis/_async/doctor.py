"""The checks of `doctor`: whether the servers can keep locks, and whether messages are delivered."""

from typing import Any

from interlock.core.claims import Check
from interlock.core.errors import LockError
from interlock.remote.failures import Refused
from interlock.runtime import clock
from interlock.stores.redis.resp import pack

SKEW = 1.0  # seconds; a check warns if clocks differ by more
TRIES, MESSAGE_LIMIT = 3, 2.0  # a message may be lost when a node has just joined its cluster; seconds for each


async def examine(queue: Any) -> list[Check]:
    """Check version, role, clock, memory policy and persistence of each server, and the delivery of a message.

    Whether this user may run the scripts, the lock shows that `doctor` acquires on every store.
    """
    checks: list[Check] = []
    try:
        for node in await queue.nodes():
            checks += await _server(queue, node)
        checks.append(await _message(queue))
    except LockError as error:
        checks.append(Check("server", "fail", str(error)))
    return checks


async def _server(queue: Any, node: str) -> list[Check]:
    day = clock.time_of_day()
    seconds, micros = await queue.ask(pack("TIME"), node)
    checks = [_clock(day - int(seconds) - int(micros) / 1e6)]
    try:
        text = await queue.ask(pack("INFO"), node)
        await queue.ask(pack("SCAN", "0", "COUNT", "1"), node)
    except Refused as error:  # locks work without them
        return [*checks, Check("rights", "warn", str(error))]
    pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return [*checks, *_about({name: value for name, _, value in pairs})]


def _clock(skew: float) -> Check:
    if abs(skew) <= SKEW:
        return Check("clock", "ok", f"differs from this machine's by {skew * 1000:.0f} ms")
    return Check(
        "clock",
        "warn",
        f"differs from this machine's by {skew:.1f} s; leases are judged by the server's clock alone, which must not "
        f"jump: if it is set forward by what is left of a lease, two may hold the lock; let NTP slew it, and keep "
        f"the clocks of replicas together",
    )


def _about(about: dict[str, str]) -> list[Check]:
    name = about.get("server_name", "redis")
    version = about.get("valkey_version") or about.get("redis_version", "?")
    checks = [Check("version", "ok", f"{name} {version}")]
    if about.get("role", "master") != "master":
        checks.append(Check("role", "fail", "this is a replica: connect to the primary"))
    policy = about.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and about.get("maxmemory", "0") != "0":
        text = f"maxmemory-policy is {policy}: the server may evict held locks and records; set noeviction"
        checks.append(Check("memory", "fail", text))
    if about.get("aof_enabled", "0") == "0":
        text = (
            "appendonly is off: a restart of the server forgets held locks, whose holders learn it at their next "
            "renewal; give the resource the fence"
        )
        checks.append(Check("persistence", "warn", text))
    return checks


async def _message(queue: Any) -> Check:
    """Subscribe, publish and receive, as in the notification of a waiter."""
    await queue.listen()
    for _ in range(TRIES):
        if await queue.hears_itself(MESSAGE_LIMIT):
            return Check("messages", "ok", "what was published arrived")
    seconds = TRIES * MESSAGE_LIMIT
    return Check(
        "messages", "fail", f"what was published did not arrive within {seconds:g} s: waiters hear by their own look"
    )
