"""The connections of asyncio tasks to the primary that Sentinel names."""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any

from interlock._redis.aconnection import AsyncConnection
from interlock._redis.apool import AsyncPool
from interlock._redis.clients import OneServer
from interlock._redis.message import Message, outdated
from interlock._redis.pipeline import Batch
from interlock._redis.sentinels import ASK, CONFIRMED, IO_TIMEOUT, Sentinels
from interlock.core.errors import StoreError
from interlock.runtime.shared import SharedWork


class AsyncSentinelPool(AsyncPool):
    """As `AsyncPool`; no answer is believed unless Sentinel named its primary within a second.

    Args:
        factory: how to connect to the primary.
    """

    def __init__(self, factory: OneServer) -> None:
        super().__init__(factory)
        self._watched = factory
        self._start_asking()

    def _start_asking(self) -> None:
        self._sentinels = Sentinels(self._watched, tasks=True)
        self._pools: dict[int, AsyncPool] = {}
        self._primary = object()  # another one since there was another primary: the old one is not believed
        self._asking = SharedWork(self._ask_all, "interlock-asks-sentinel")  # once for all tasks

    def exchange(self, command: bytes, line: str, owner: str | None) -> Coroutine[Any, Any, Any]:
        """As `AsyncPool.exchange`."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            return self.aask(Message(command, line, owner))
        return self._believed(self._primary, super().exchange(command, line, owner))

    async def aask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """As `AsyncPool.aask`."""
        return await self._believed(await self._confirmed(), super().aask(message, once_more, asking))

    async def aask_all(self, batch: Batch) -> list[Any]:
        """As `AsyncPool.aask_all`."""
        primary = await self._confirmed()
        replies = await super().aask_all(batch)
        if primary is not await self._confirmed():
            return [outdated(self.factory.where)] * len(replies)
        return replies

    async def _believed(self, primary: object, coming: Coroutine[Any, Any, Any]) -> Any:
        reply = await coming
        if primary is not await self._confirmed():
            raise outdated(self.factory.where)
        return reply

    def distrust(self) -> None:
        """As `AsyncPool.distrust`."""
        self._primary = object()
        super().distrust()

    async def _confirmed(self) -> object:
        """Return which primary it is, as the Sentinels named it within a second; another task may have heard it."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            await self._asking.done()
        return self._primary

    async def _ask_all(self) -> None:
        began = monotonic()
        if self._connections.closed:
            return
        asked = {client: asyncio.create_task(self._one(client)) for client in self._sentinels.to_ask()}
        if asked:
            await asyncio.wait(asked.values(), timeout=2 * IO_TIMEOUT)
        replies = []
        for client, task in asked.items():
            task.cancel()
            if task.done() and not task.cancelled() and (reply := task.result()) is not None:
                replies.append((client, reply))
            else:
                self._sentinels.rest(client)
        if self._sentinels.hear(began, replies):
            self.distrust()

    async def _one(self, client: Any) -> Any:
        pool = self._pools.get(id(client))
        if pool is None:
            pool = self._pools[id(client)] = AsyncPool(self._sentinels.factory_for(client))
        try:
            return await pool.aask(ASK)
        except StoreError:
            return None

    def opening(self) -> "list[asyncio.Task[Any]]":
        """As `AsyncPool.opening`."""
        asking = self._asking.underway()
        return [*super().opening(), *asking, *(task for pool in self._pools.values() for task in pool.opening())]

    def connections(self) -> list[AsyncConnection]:
        """As `AsyncPool.connections`."""
        return [
            *super().connections(),
            *(connection for pool in self._pools.values() for connection in pool.connections()),
        ]

    def close(self) -> None:
        """As `AsyncPool.close`."""
        super().close()
        for pool in self._pools.values():
            pool.close()

    def reset(self) -> None:
        """As `AsyncPool.reset`."""
        super().reset()
        for pool in self._pools.values():
            pool.reset()
        self._start_asking()
