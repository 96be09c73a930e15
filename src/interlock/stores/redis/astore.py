"""redis:// - locks on a Redis or Valkey server, for asyncio tasks."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from interlock.aengine import arun
from interlock.claims import Check, Claim
from interlock.errors import StoreError
from interlock.protocols.queue import Turn
from interlock.stores.redis.checks import examine
from interlock.stores.redis.message import Broken, Message
from interlock.stores.redis.queue import RedisQueue
from interlock.stores.redis.resp import ended_by
from interlock.taskbell import TaskBell

GOODBYE = 1.0  # seconds


class AsyncRedisStore(RedisQueue):
    """A store on a Redis server, for asyncio tasks."""

    def aenter_now(self, claim: Claim, wait: bool) -> Turn | Coroutine[Any, Any, Turn]:
        """As `enter`, the first time, without a generator around it; what to await if it is not done at once."""
        try:
            start, line = self._enter_of(claim.terms, claim.who, self._mode(claim, None, wait, False))
            reply = self._wire.exchange(start, line, claim.id)
        except StoreError as error:
            return self._unclear(claim, error, False)
        if type(reply) is int and reply > 0 and not self._waits:
            return Turn("using", reply)
        if type(reply) is int or type(reply) is list:
            return self._turn(claim, reply, wait)
        return self._enters(claim, wait, reply)

    async def _enters(self, claim: Claim, wait: bool, reply: Coroutine[Any, Any, Any]) -> Turn:
        try:
            return self._turn(claim, await reply, wait)
        except StoreError as error:
            return self._unclear(claim, error, False)

    def aleave_now(self, claim: Claim) -> bool | Coroutine[Any, Any, bool]:
        """As `leave`, of a claim that holds the lock; what to await if the answer does not come at once.

        If that is cancelled, leave again to know what became of the claim.
        """
        start, line, let_in = self._released(claim)
        try:
            reply = self._wire.exchange(start, line, claim.id, busy=let_in)
        except Broken:
            return arun(self._leave_again(Message(ended_by(start, claim.id), line, claim.id)))
        if type(reply) is int:
            return reply == 1
        return self._left(reply) if type(reply) is list else self._leaves(reply, start, line, claim.id)

    async def _leaves(self, reply: Coroutine[Any, Any, Any], start: bytes, line: str, id: str) -> bool:
        try:
            return self._left(await reply)
        except Broken:
            return await arun(self._leave_again(Message(ended_by(start, id), line, id)))
        except asyncio.CancelledError:
            self._bells.ring_all()  # the reply says who was promoted, and nobody will read it
            raise

    def thread_wakeup(self) -> Any:
        """There is none: this store's connections belong to event loops."""
        raise StoreError("this store is for asyncio tasks: use interlock.connect()")

    def task_wakeup(self) -> TaskBell:
        """Return a wake-up for the calling task."""
        return TaskBell()

    def doctor(self) -> list[Check]:
        """There is none: `adoctor` examines."""
        raise StoreError("this store is for asyncio tasks: await adoctor()")

    async def aclose(self) -> None:
        """Close all connections, and wait a moment until they are closed: TLS says good-bye."""
        links = [*self._wire.links(), *self._ears.links()]
        opening = [*self._wire.opening(), *self._ears.opening()]
        self.close()
        ends = [*(link.gone for link in links), *opening]
        if ends:
            await asyncio.wait(ends, timeout=GOODBYE)
        if self._release is not None:
            await self._release()

    async def adoctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return await arun(examine(self._wire, self._ears))
