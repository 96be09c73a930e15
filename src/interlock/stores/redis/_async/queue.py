"""The queue on a Redis server, on the primary that Sentinel names, or on a cluster."""

from collections.abc import Sequence
from typing import Literal

from interlock.core.claims import SEPARATOR, Check, Claim, ClaimView, keys_of, namespace_of
from interlock.core.errors import StoreError
from interlock.core.failures import Refused
from interlock.core.queue import Renewed
from interlock.runtime import _aio as rt
from interlock.runtime import clock, log
from interlock.storekit._async.listener import AsyncSubscription
from interlock.storekit._async.pool import AsyncPool
from interlock.storekit._async.server_queue import AsyncAsks, AsyncServerQueue
from interlock.stores.redis._async.connection import AsyncDialer, answer_to
from interlock.stores.redis.keys import key_of, pattern_of
from interlock.stores.redis.resp import RedisCommand, Reply, pack
from interlock.stores.redis.settings import Settings
from interlock.stores.redis.wire import DEAF_LOOK, RedisWire

CHANNEL = "interlock:wake:"
SKEW = 1.0  # seconds; doctor warns if clocks differ by more
MESSAGE_ATTEMPTS, MESSAGE_LIMIT = (
    3,
    2.0,
)  # a message may be lost when a node has just joined its cluster; seconds for each


def pool_to(dialer: AsyncDialer, wire: RedisWire) -> AsyncAsks[RedisCommand, Reply]:
    """Return the connections to one server: a pool for threads, one connection for tasks."""
    # async only
    if dialer.settings.make is None:
        from interlock.stores.redis._mux import MuxPool

        return MuxPool(dialer.open, answer_to, dialer.settings.where, dialer.settings.io_timeout, wire.leave)
    return AsyncPool(dialer.open, dialer.settings.where, dialer.settings.most, wire.leave)


class AsyncRedisQueue(AsyncServerQueue[RedisCommand, Reply]):
    """The queue of one process or event loop on one server.

    Args:
        settings: the settings of its connections.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dialer = AsyncDialer(settings)
        self._dialer.moved = self.invalidate_connections
        self._redis = RedisWire(settings.where, settings.io_timeout, settings.replicas)
        super().__init__(self._redis, pool_to(self._dialer, self._redis), self._subscribe, fresh_channel())
        self._waiters.trusts = not settings.replicas

    async def _subscribe(self, deadline: float) -> AsyncSubscription:
        """Subscribe; without SUBSCRIBE on the server or a proxy, let waiters poll."""
        subscription = await self._dialer.subscribe(self.channel, deadline)
        if subscription.deaf is not None and not self._redis.deaf:
            log.warn("Waiters poll every %g s, because they cannot subscribe: %s", DEAF_LOOK, subscription.deaf)
            self._redis.deaf = True
        return subscription

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """Renew like `AsyncQueue.renew`; first ask the Sentinels about the primary.

        A claim that is refused in the common request, such as during a move of its slot, is renewed separately.
        """
        await self._dialer.check()
        answers = await super().renew(claims)
        for place, answer in enumerate(answers):
            if isinstance(answer, Refused) and not answer.is_unavailable and len(claims) > 1:
                try:
                    answers[place : place + 1] = await super().renew(claims[place : place + 1])
                except StoreError as error:
                    answers[place] = error
        return answers

    async def look(self, key: str) -> list[ClaimView]:
        """List like `AsyncQueue.look`."""
        known = await self.keys(key) if key.endswith(SEPARATOR) else [key]
        views = []
        for each in keys_of(key, known):
            views += self._redis.views(each, await self._ask_twice(self._redis.look(each)))
        return views

    async def namespaces(self) -> list[str]:
        """List the namespaces with a holder or a waiter."""
        found = {namespace_of(each) for each in await self.keys("")}
        return sorted([each for each in found if await self.look(each + SEPARATOR)])

    async def keys(self, prefix: str) -> list[str]:
        """List the keys with `prefix` that may have claims; by SCAN, in small steps."""
        found: set[str] = set()
        for node in await self.nodes():
            cursor = b""
            while cursor not in (b"0", 0):
                command = pack("SCAN", cursor or b"0", "MATCH", pattern_of(prefix), "COUNT", "1000")
                cursor, names = await self._ask_twice(RedisCommand(command, node))
                found.update(key_of(name.decode()) for name in names)
        return sorted(found)

    async def nodes(self) -> list[str]:
        """Return a `RedisCommand.line` for each server that has keys."""
        return [""]

    async def doctor(self) -> list[Check]:
        """Check each server's version, role, clock, memory policy and persistence, and a message.

        The lock that `doctor` acquires on every store shows whether this user may run the scripts.
        """
        checks: list[Check] = []
        for node in await self.nodes():
            checks += await self._examine(node)
        return [*checks, await self._hear()]

    async def _examine(self, node: str) -> list[Check]:
        seconds, micros = await self._ask_twice(RedisCommand(pack("TIME"), node))
        skew = clock.time_of_day() - int(seconds) - int(micros) / 1e6
        try:
            text = await self._ask_twice(RedisCommand(pack("INFO"), node))
            await self._ask_twice(RedisCommand(pack("SCAN", "0", "COUNT", "1"), node))
        except Refused as error:  # locks work without them
            return [*_about({}, skew), Check("rights", "warn", str(error))]
        pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
        return _about({name: value for name, _, value in pairs}, skew)

    async def _hear(self) -> Check:
        """Subscribe, publish and receive, like the notification of a waiter."""
        await self._listener.start(clock.now() + self._settings.io_timeout)
        id, waiter = rt.fresh_id(), self.subscribe()
        self._waiters.add(id, waiter)
        try:
            for _ in range(MESSAGE_ATTEMPTS):
                await self._ask_twice(RedisCommand(pack("PUBLISH", self.channel, f"{id} 1")))
                if await waiter.wait(MESSAGE_LIMIT) is not None:
                    return Check("messages", "ok", "A published message arrived.")
        finally:
            self._waiters.leaves(id)
        return Check(
            "messages",
            "fail",
            f"A published message did not arrive within {MESSAGE_ATTEMPTS * MESSAGE_LIMIT:g} s. "
            "Waiters poll instead.",
        )


def fresh_channel() -> str:
    """Return the name of a new channel."""
    return CHANNEL + rt.fresh_id()


def _about(about: dict[str, str], skew: float) -> list[Check]:
    """Return the facts about a server.

    Args:
        about: its reply to INFO.
        skew: seconds by which its clock differs from this machine's.
    """
    name, version = about.get("server_name", "redis"), about.get("valkey_version") or about.get("redis_version")
    policy = about.get("maxmemory_policy", "noeviction")
    evicts = policy != "noeviction" and about.get("maxmemory", "0") != "0"
    found: list[tuple[str, Literal["ok", "warn", "fail", ""], str]] = [
        (
            "clock", "ok" if abs(skew) <= SKEW else "warn",
            f"The server's clock differs from this machine's by {skew * 1000:.0f} ms. Leases depend on the server's "
            f"clock alone: if it jumps forward by the rest of a lease, two may hold the lock. Let NTP slew the "
            f"clock, and synchronize the clocks of replicas.",
        ),
        ("version", "ok" if version else "", f"{name} {version}"),
        (
            "role", "" if about.get("role", "master") == "master" else "fail",
            "The server is a replica. Connect to the primary.",
        ),
        (
            "memory", "fail" if evicts else "",
            f"maxmemory-policy is {policy}: the server may evict held locks and records. Set noeviction.",
        ),
        (
            "persistence", "warn" if about.get("aof_enabled") == "0" else "",
            "appendonly is off: a restart of the server forgets held locks; their holders are notified at the next "
            "renewal. Pass the fence to the resource.",
        ),
    ]  # fmt: skip
    return [Check(name, status, detail) for name, status, detail in found if status]
