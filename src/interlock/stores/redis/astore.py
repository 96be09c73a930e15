"""redis:// - locks on a Redis or Valkey server, for asyncio tasks."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any

from interlock._redis.message import ConnectionEnded, Message, NoAnswer
from interlock._redis.resp import ended_by
from interlock.core.claims import Check, Claim
from interlock.core.errors import StoreError
from interlock.core.queue import EnterResult
from interlock.runtime.aio import TaskEvent, arun
from interlock.stores.redis.checks import examine
from interlock.stores.redis.queue import CUTS, REMOVED, RedisQueue
from interlock.stores.redis.rights import examine_rights

GOODBYE = 1.0  # seconds


class AsyncRedisStore(RedisQueue):
    """A store on a Redis server, for asyncio tasks."""

    def aenter_now(self, claim: Claim, wait: bool) -> EnterResult | Coroutine[Any, Any, EnterResult]:
        """As `enter`, the first time, without a generator around it; what to await if it is not done at once."""
        try:
            start, line = self._enter_of(claim.spec, claim.who, self._mode(claim, None, wait, False))
            reply = self._pool.exchange(ended_by(start, claim.id), line, claim.id)
        except StoreError as error:
            return self._on_first_error(claim, error, False, wait)
        return self._enters(claim, wait, reply)

    async def _enters(self, claim: Claim, wait: bool, coming: Awaitable[Any]) -> EnterResult:
        try:
            reply = await coming
        except StoreError as error:
            return self._on_first_error(claim, error, False, wait)
        if type(reply) is int and reply > 0 and not self._waits:
            self._answered = True
            return EnterResult("using", reply)
        return self._result_of(claim, reply, wait, False)

    async def aleave_now(self, claim: Claim) -> bool:
        """As `leave`, of a claim that holds the lock; if it is cancelled, leave again to know what became of it."""
        command, line, successor, late = self._released(claim)
        try:
            reply = await self._pool.exchange(command, line, None)
        except (ConnectionEnded, NoAnswer) as error:
            times = CUTS if type(error) is ConnectionEnded else 1
            return await arun(self._leave_again(Message(command, line), successor, times))
        except BaseException:
            self._left_unheard(successor)
            raise
        if reply == REMOVED:
            return True
        removed = await arun(self._left_all(Message(command, line), reply, successor))
        return self._left_or_late(removed, late)

    def thread_wakeup(self) -> Any:
        """There is none: this store's connections belong to event loops."""
        raise StoreError("this store is for asyncio tasks: use interlock.connect()")

    def task_wakeup(self) -> TaskEvent:
        """Return a wake-up for the calling task."""
        return TaskEvent()

    def doctor(self) -> list[Check]:
        """There is none: `adoctor` examines."""
        raise StoreError("this store is for asyncio tasks: await adoctor()")

    async def leave_loop(self) -> None:
        """Close the connections of the running loop, which ends."""
        connections = [*self._pool.connections(), *self._subscription.leave_loop()]
        for connection in connections:
            connection.close()
        await _until_closed([connection.gone for connection in connections])
        if self._release is not None:
            await self._release(closing=False)

    async def aclose(self) -> None:
        """Close all connections, and wait a moment until they are closed: TLS says good-bye."""
        connections = [*self._pool.connections(), *self._subscription.connections()]
        opening = [*self._pool.opening(), *self._subscription.opening()]
        self.close()
        await _until_closed([*(connection.gone for connection in connections), *opening])
        if self._release is not None:
            await self._release(closing=True)

    async def adoctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return [*(await arun(examine(self._pool))), *(await arun(examine_rights(self)))]


async def _until_closed(ends: "Sequence[asyncio.Future[Any]]") -> None:
    """Wait a moment until connections are closed: TLS says good-bye."""
    if ends:
        await asyncio.wait(ends, timeout=GOODBYE)
