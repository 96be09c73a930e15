"""The checks of `doctor`: whether a server can keep locks, and whether this user has the rights for them."""

import re
from typing import Any

from interlock.core.claims import DEFAULT_TTL, MIN_TTL, SEPARATOR, Check
from interlock.core.errors import LockError
from interlock.remote.redispy import code_of
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.stores.redis.keys import line_of
from interlock.stores.redis.resp import RedisCommand, ReplyError, pack
from interlock.stores.redis.wire import source_of

SKEW = 1.0  # seconds; a check warns if clocks differ by more
BEARS = 3  # a lease of this many times the skew is safe, since it is renewed after a third
ROUNDS = 5
NAMES = 4  # random names tried for each node of a cluster, so that almost every node gets one
TRIES, MESSAGE_LIMIT = 3, 2.0  # a message may be lost when a node has just joined its cluster; seconds for each
REPLICA_LIMIT = 1.0  # seconds to wait for a replica
SPARED = {
    "publish": "waiters of other processes are not told, and hear by their own look, up to 5 s late",
    "scan": "claims() can't list all names",
    "info": "nothing is known about the server, and that another one took its place may be noticed late",
}
"""The rights without which locks still work, and the consequence of each missing one."""
_REPLICA = re.compile(rb"^slave\d+:ip=([^,]+),port=(\d+)", re.MULTILINE)


async def examine(queue: Any) -> list[Check]:
    """Check version, round trip, clocks, memory policy, persistence, rights, and the delivery of a message."""
    checks = []
    missing: dict[str, None] = {}
    try:
        nodes = await queue.nodes()
        for node in nodes:
            checks += await _server(queue, node)
        checks += await _clocks(queue, nodes)
    except LockError as error:
        checks.append(Check("server", "fail", str(error)))
    message = await _message(queue, missing)
    try:
        nodes = await queue.nodes()
        for node in nodes:
            await _try_directly(queue, node, missing)
        for _ in range(NAMES * len(nodes) if nodes != [""] else 1):
            await _try_scripts(queue, missing)
        checks.append(_rights(list(missing)))
    except LockError as error:
        checks.append(Check("rights", "fail", str(error)))
    return [*checks, message]


async def _server(queue: Any, node: str) -> list[Check]:
    times = []
    ahead = 0.0
    for _ in range(ROUNDS):
        ahead, took = await _ahead(queue, node)
        times.append(took)
    try:
        text = await queue.ask(pack("INFO"), node)
    except LockError:
        text = b""  # the access list may forbid INFO
    pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    about = {name: value for name, _, value in pairs}
    return [*_about(about), _clock(-ahead), Check("server", "ok", f"answers in {min(times) * 1e6:.0f} us")]


async def _ahead(queue: Any, node: str) -> tuple[float, float]:
    """Return by how many seconds a server's clock is ahead of this machine's, and the duration of the request."""
    sent, day = clock.now(), clock.time_of_day()
    seconds, micros = await queue.ask(pack("TIME"), node)
    took = clock.now() - sent
    return int(seconds) + int(micros) / 1e6 - day - took / 2, took


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
    if not about:
        return [Check("version", "warn", f"the access list forbids INFO: {SPARED['info']}")]
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


async def _clocks(queue: Any, nodes: list[str]) -> list[Check]:
    """Compare the clocks of all servers that may judge a lease, now or after a fail-over: primaries and replicas."""
    ahead: dict[str, float] = {}
    unheard: list[str] = []
    for node in nodes:
        ahead[node.lstrip("@") or "the primary"] = (await _ahead(queue, node))[0]
        try:
            text = await queue.ask(pack("INFO", "replication"), node)
        except LockError:
            continue
        for host, port in _REPLICA.findall(text):
            where = f"{host.decode()}:{int(port)}"
            try:
                ahead[where] = await _ahead_there(queue, (host.decode(), int(port)))
            except LockError:
                unheard.append(where)
    checks = [] if len(ahead) < 2 else [_judged(ahead)]
    if unheard:
        text = f"{' and '.join(unheard)} can't be asked from here: compare the clocks by hand"
        checks.append(Check("clocks", "warn", text))
    return checks


async def _ahead_there(queue: Any, address: tuple[str, int]) -> float:
    connection = await queue.dialer_to(address).open(clock.now() + REPLICA_LIMIT)
    try:
        day = clock.time_of_day()
        seconds, micros = await connection.ask(RedisCommand(pack("TIME")), clock.now() + REPLICA_LIMIT)
        return float(int(seconds) + int(micros) / 1e6 - day)
    finally:
        connection.close()


def _judged(ahead: dict[str, float]) -> Check:
    fast, slow = max(ahead, key=lambda each: ahead[each]), min(ahead, key=lambda each: ahead[each])
    skew = ahead[fast] - ahead[slow]
    safe = max(MIN_TTL, BEARS * skew)
    if skew <= SKEW:
        text = f"{len(ahead)} servers differ by {skew * 1000:.0f} ms: safe for leases of {safe:.1f} s and longer"
        return Check("clocks", "ok", text)
    return Check(
        "clocks",
        "fail" if safe > DEFAULT_TTL else "warn",
        f"{fast} is {skew:.1f} s ahead of {slow}: where it takes the other's place, leases end so much too early, "
        f"and two may hold the lock; only leases of {safe:.0f} s and longer, renewed, bear it: let NTP keep the "
        f"clocks together",
    )


def _rights(missing: list[str]) -> Check:
    if not missing:
        return Check("rights", "ok", "this user may do all that locks need")
    allow = " ".join(each if each[0] in "~&" else f"+{each}" for each in missing)
    spared = [SPARED[each] for each in missing if each in SPARED]
    text = "; ".join([f"the access list forbids {', '.join(missing)}", *spared, f"allow this user: {allow}"])
    return Check("rights", "warn" if len(spared) == len(missing) else "fail", text)


async def _try_directly(queue: Any, node: str, missing: dict[str, None]) -> None:
    commands = {"info": ("INFO", "server"), "scan": ("SCAN", "0", "COUNT", "1")}
    if node:
        commands["asking"] = ("ASKING",)
    for name, words in commands.items():
        try:
            await queue.ask(pack(*words), node)
        except LockError as error:
            _mark(error, name, missing)


async def _try_scripts(queue: Any, missing: dict[str, None]) -> None:
    key = f"{SEPARATOR}interlock doctor {rt.fresh_id()}"
    line = line_of(key)
    text = source_of("rights")
    soon = str(int(clock.time_of_day() * 1000) + 60_000)
    refused: list[bytes] = []
    try:
        refused = await queue.ask(pack("EVAL", text, "1", line, soon, queue.channel), line)
    except LockError as error:
        _mark(error, "~interlock:*" if "key" in str(error.__cause__) else "eval", missing)
    try:
        await queue.look(key)
    except LockError as error:
        if "evalsha" in str(error.__cause__):  # else the error is one that was found before
            missing["evalsha"] = None
    for name, why in zip(refused[::2], refused[1::2], strict=True):
        if code_of(ReplyError(why.decode(errors="replace"))) == "NOPERM":
            missing["&interlock:*" if b"channel" in why else name.decode()] = None


async def _message(queue: Any, missing: dict[str, None]) -> Check:
    """Subscribe, publish and receive, as in the notification of a waiter."""
    began = clock.now()
    step = "subscribe"
    heard = False
    try:
        await queue.listen()
        step = "publish"
        for _ in range(TRIES):
            heard = heard or await queue.hears_itself(MESSAGE_LIMIT)
    except LockError as error:
        if not _is_forbidden(error):
            return Check("messages", "fail", str(error))
        missing["&interlock:*" if "channel" in str(error.__cause__).lower() else step] = None
        status: Any = "warn" if step == "publish" else "fail"
        return Check("messages", status, f"the access list forbids to {step}: {error.__cause__}")
    if not heard:
        seconds = TRIES * MESSAGE_LIMIT
        text = f"what was published did not arrive within {seconds:g} s: waiters hear by their own look"
        return Check("messages", "fail", text)
    took = (clock.now() - began) * 1000
    return Check("messages", "ok", f"subscribed, published and received within {took:.1f} ms")


def _mark(error: LockError, name: str, missing: dict[str, None]) -> None:
    if not _is_forbidden(error):
        raise error
    missing[name] = None


def _is_forbidden(error: LockError) -> bool:
    return isinstance(error.__cause__, ReplyError) and code_of(error.__cause__) == "NOPERM"
