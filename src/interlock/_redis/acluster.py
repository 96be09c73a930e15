"""A cluster, for asyncio tasks; as `cluster`."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from interlock._redis.aconnection import AsyncConnection
from interlock._redis.apool import AsyncPool
from interlock._redis.errors import NoRoom, Passing
from interlock._redis.map import Map
from interlock._redis.message import Denied, Message, Unreachable
from interlock._redis.routing import Directions, Nodes, Reading
from interlock._redis.slots import Address
from interlock.core.errors import StoreError
from interlock.runtime.aio import arun
from interlock.runtime.shared import SharedWork


class TaskNodes(Nodes):
    """As `Nodes`, for asyncio tasks."""

    async def aask(self, reading: Reading) -> list[str]:
        """Read the map."""
        return await arun(self._read(reading))


class AsyncClusterPool:
    """The connections to the nodes of a cluster, for asyncio tasks.

    Args:
        map: the cluster.
    """

    follows = True

    def __init__(self, map: Map) -> None:
        self._map = map
        self._pools: dict[Address, AsyncPool] = {}
        self._closed = False
        self.nodes = TaskNodes(map, self._pool)
        self._directions = Directions(map, self.nodes, self._pool)
        self.batches = map.batches
        self.node_of = map.address_of
        self.target_of = map.target_of
        self.once = self._directions.once
        self._looking = SharedWork(self._look_aside, "interlock-map")

    def at(self, node: Address) -> AsyncPool:
        """As `ClusterPool.at`."""
        return self._pool(node)

    def look_again_soon(self) -> None:
        """As `ClusterPool.look_again_soon`."""
        if not self._closed:
            self._looking.begin()

    async def _look_aside(self) -> None:
        try:
            await self.nodes.aask(Reading(self._map.version))
        except StoreError:
            pass  # whoever asks next says so

    def _pool(self, address: Address) -> AsyncPool:
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools.setdefault(address, AsyncPool(self._map.factory_for(address)))
        return pool

    async def aask(self, message: Message) -> Any:
        """As `AsyncPool.aask`, on the node that the message's line lives on."""
        version = self._map.version
        address = None
        try:
            if not version:
                await self.nodes.aask(Reading(version))
            address = self._map.address_of(message.line)
            return await self._pool(address).aask(message)
        except (NoRoom, Denied):
            raise
        except (Passing, Unreachable) as error:
            failure = error
        return await arun(self._directions.follow(message, address, version, failure))

    def exchange(self, command: bytes, line: str, owner: str | None) -> Coroutine[Any, Any, Any]:
        """As `AsyncPool.exchange`."""
        return self.aask(Message(command, line, owner))

    @property
    def has_late(self) -> bool:
        """As `AsyncPool.has_late`, of any node."""
        return any(pool.has_late for pool in list(self._pools.values()))

    def leave_late(self, owner: str, command: bytes) -> bool:
        """As `AsyncPool.leave_late`, on all nodes."""
        return any([pool.leave_late(owner, command) for pool in list(self._pools.values())])  # noqa: C419 - all of them

    def opening(self) -> "list[asyncio.Task[Any]]":
        """Return the connections that are being made for the running loop."""
        return [task for pool in list(self._pools.values()) for task in pool.opening()]

    def connections(self) -> list[AsyncConnection]:
        """Return the connections of the running loop."""
        return [connection for pool in list(self._pools.values()) for connection in pool.connections()]

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._looking.cancel()
        for pool in list(self._pools.values()):
            pool.close()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        self._looking = SharedWork(self._look_aside, "interlock-map")
        for pool in list(self._pools.values()):
            pool.reset()
