"""redis:// - locks on a Redis or Valkey server, for asyncio tasks."""

import asyncio
from typing import Any

from interlock.aengine import arun
from interlock.claims import Check
from interlock.errors import StoreError
from interlock.stores.redis.checks import examine
from interlock.stores.redis.queue import RedisQueue
from interlock.taskbell import TaskBell

GOODBYE = 1.0  # seconds


class AsyncRedisStore(RedisQueue):
    """A store on a Redis server, for asyncio tasks."""

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
        self.close()
        if links:
            await asyncio.wait([link.gone for link in links], timeout=GOODBYE)
        if self._release is not None:
            await self._release()

    async def adoctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return await arun(examine(self._wire, self._ears))
