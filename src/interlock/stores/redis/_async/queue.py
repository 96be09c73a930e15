"""The queue on a Redis server, on the primary that Sentinel names, or on a cluster."""

from collections.abc import Sequence
from typing import Any

from interlock.core.claims import Check, Claim
from interlock.core.queue import Renewed
from interlock.remote._async.listener import AsyncSubscription
from interlock.remote._async.pool import AsyncPool
from interlock.remote._async.server_queue import AsyncAsks, AsyncServerQueue
from interlock.remote.failures import Refused, closed
from interlock.runtime import _aio as rt
from interlock.runtime import clock, log
from interlock.stores.redis._async.connection import AsyncDialer, answer_to
from interlock.stores.redis._async.doctor import examine
from interlock.stores.redis.keys import key_of, pattern_of
from interlock.stores.redis.resp import RedisCommand, Reply, pack
from interlock.stores.redis.settings import Settings
from interlock.stores.redis.wire import DEAF_LOOK, RedisWire

CHANNEL = "interlock:wake:"


def pool_to(dialer: AsyncDialer, wire: RedisWire) -> AsyncAsks[RedisCommand, Reply]:
    """Return the connections to one server: a pool for threads, one connection of ours for tasks."""
    # async only
    if dialer.settings.make is None:
        from interlock.stores.redis._mux import MuxPool

        return MuxPool(dialer.open, answer_to, dialer.where, dialer.settings.io_timeout, wire.undo)
    return AsyncPool(dialer.open, dialer.where, dialer.settings.most, wire.undo)


class AsyncRedisQueue(AsyncServerQueue[RedisCommand, Reply]):
    """The queue of one process or event loop on one server.

    Args:
        settings: how to connect.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dialer = AsyncDialer(settings)
        self._dialer.moved = self.distrust
        self._redis = RedisWire(settings.where, settings.io_timeout, True, settings.replicas)
        channel = fresh_channel()
        super().__init__(self._redis, pool_to(self._dialer, self._redis), self._subscribe, channel)
        self._waiters.trusts = not settings.replicas

    async def _subscribe(self, deadline: float) -> AsyncSubscription:
        """Subscribe; if the server or a proxy does not support SUBSCRIBE, log that, and let waiters poll."""
        try:
            return await self._dialer.subscribe(self.channel, deadline)
        except Refused as error:
            if error.code != "UNKNOWN":
                raise
            if not self._redis.deaf:
                log.warn("who waits looks every %g s, since nothing can be subscribed to: %s", DEAF_LOOK, error)
            self._redis.deaf = True
            return AsyncDeaf()

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """As `AsyncQueue.renew`; asks the Sentinels first whether the primary has changed."""
        await self._dialer.check()
        return await super().renew(claims)

    async def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix` and may have claims; by SCAN, in small steps."""
        return sorted(await self._keys_at("", prefix))

    async def _keys_at(self, node: str, prefix: str) -> set[str]:
        found: set[str] = set()
        cursor: Any = b"0"
        while True:
            command = pack("SCAN", cursor, "MATCH", pattern_of(prefix), "COUNT", "1000")
            cursor, names = await self._ask_twice(RedisCommand(command, node))
            found.update(key_of(name.decode()) for name in names)
            if cursor in (b"0", 0):
                return found

    async def nodes(self) -> list[str]:
        """Return a `RedisCommand.line` for each server that has keys."""
        return [""]

    async def ask(self, command: bytes, node: str) -> Any:
        """Send a command that may be performed twice; `node` is its `RedisCommand.line`."""
        return await self._ask_twice(RedisCommand(command, node))

    async def listen(self) -> None:
        """Wait until the subscription is confirmed."""
        await self._listener.start(clock.now() + self._settings.io_timeout)

    async def hears_itself(self, seconds: float) -> bool:
        """Publish a message to this process; return True if it arrives within `seconds`."""
        id, waiter = rt.fresh_id(), self.subscribe()
        self._waiters.add(id, waiter)
        try:
            await self.ask(pack("PUBLISH", self.channel, f"{id} 1"), "")
            return await waiter.wait(seconds) is not None
        finally:
            self._waiters.leaves(id)

    async def doctor(self) -> list[Check]:
        """As `AsyncQueue.doctor`."""
        return await examine(self)


class AsyncDeaf:
    """A subscription that receives nothing, for servers without SUBSCRIBE."""

    def __init__(self) -> None:
        self._waiter: rt.AsyncWaiter[object] = rt.AsyncWaiter()

    async def receive(self, deadline: float) -> list[str]:
        """As `AsyncSubscription.receive`."""
        if await self._waiter.wait(deadline - clock.now()) is not None:
            raise closed()
        return []

    async def confirm(self, deadline: float) -> None:
        """Do nothing: it needs no proof that messages arrive."""

    def close(self) -> None:
        """As `AsyncSubscription.close`."""
        self._waiter.tell(self)


def fresh_channel() -> str:
    """Return the name of a new channel."""
    return CHANNEL + rt.fresh_id()
