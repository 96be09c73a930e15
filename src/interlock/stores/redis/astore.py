"""redis:// - locks on a Redis or Valkey server, for asyncio tasks."""

import asyncio
from typing import Any

from interlock.aengine import arun
from interlock.claims import Check, Claim
from interlock.errors import StoreError, UnknownOutcome
from interlock.protocols.queue import BUSY, Turn
from interlock.stores.redis.checks import examine
from interlock.stores.redis.message import Broken, Message
from interlock.stores.redis.queue import RedisQueue
from interlock.stores.redis.resp import ended_by
from interlock.taskbell import TaskBell

GOODBYE = 1.0  # seconds


class AsyncRedisStore(RedisQueue):
    """A store on a Redis server, for asyncio tasks."""

    async def aenter_now(self, claim: Claim, wait: bool) -> Turn:
        """As `enter`, the first time, without a generator around it."""
        try:
            start, line = self._enter_of(claim.terms, claim.who, self._mode(claim, None, wait, False))
            reply = await self._wire.exchange(start, line, claim.id)
        except StoreError as error:
            self._note(claim, error, False)
            if isinstance(error, UnknownOutcome):
                return BUSY  # whoever acquires asks again
            raise
        if type(reply) is int and reply > 0 and not self._waits:
            return Turn("using", reply)
        return self._turn(claim, reply, wait)

    async def aleave_now(self, claim: Claim) -> bool:
        """As `leave`, of a claim that holds the lock; if it is cancelled, leave again to know what became of it."""
        start, start_of_both, line = self._leave_of(claim.terms)
        heir = self._released(claim)
        if heir:
            start = start_of_both + heir
        try:
            reply = await self._wire.exchange(start, line, claim.id, busy=bool(heir))
        except Broken:
            return await arun(self._leave_again(Message(ended_by(start, claim.id), line, claim.id)))
        except asyncio.CancelledError:
            self._bells.ring_all()  # the reply says who was promoted, and nobody will read it
            raise
        return reply == 1 if type(reply) is int else self._left(reply)

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
