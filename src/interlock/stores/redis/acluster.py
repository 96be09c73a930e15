"""A cluster, for asyncio tasks; as `cluster`."""

import asyncio
from typing import Any

from interlock.errors import StoreError
from interlock.stores.redis.awire import AsyncWire, TaskLink
from interlock.stores.redis.cluster import PAUSE, Address, Map, tries
from interlock.stores.redis.message import Message, Unreachable, unreachable
from interlock.stores.redis.problems import Passing, Redirected
from interlock.stores.redis.resp import ended_by


class AsyncClusterWire:
    """The connections to the nodes of a cluster, for asyncio tasks.

    Args:
        map: the cluster.
    """

    def __init__(self, map: Map) -> None:
        self._map = map
        self._wires: dict[Address, AsyncWire] = {}
        self._closed = False
        self.nodes = map.nodes
        self.batches = map.batches

    def _wire(self, address: Address) -> AsyncWire:
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        wire = self._wires.get(address)
        if wire is None:
            wire = self._wires.setdefault(address, AsyncWire(self._map.recipe_for(address)))
        return wire

    async def aask(self, message: Message) -> Any:
        """As `AsyncWire.aask`, on the node that the message's line lives on."""
        await self.initialize()
        address, asking = None, False
        for again in tries(self._map.patience):
            try:
                if address is None:
                    address = self._map.address_of(message.line)
                return await self._wire(address).aask(message, asking=asking)
            except Redirected as error:
                address, asking, failure = error.address, error.asking, error
                if not asking:
                    await self._look_again()
            except (Unreachable, Passing) as error:
                if again and isinstance(error, Unreachable):
                    raise  # the map was fetched anew, and the node is not there
                address, asking, failure = None, False, error  # type: ignore[assignment]
                await asyncio.sleep(PAUSE)
                await self._look_again()
        raise failure

    def exchange(self, start: bytes, line: str, id: str, busy: bool = False) -> Any:
        """As `AsyncWire.exchange`."""
        return self.aask(Message(ended_by(start, id), line, id))

    async def initialize(self) -> None:
        """Let the client fetch the map of the cluster, unless it has it."""
        try:
            await self._map.client.initialize()
        except Exception as error:
            raise unreachable("the Redis cluster", error) from error

    async def _look_again(self) -> None:
        try:
            await self._map.client.nodes_manager.initialize()
        except Exception as error:
            raise unreachable("the Redis cluster", error) from error

    def opening(self) -> "list[asyncio.Task[Any]]":
        """Return the connections that are being made for the running loop."""
        return [task for wire in self._wires.values() for task in wire.opening()]

    def links(self) -> list[TaskLink]:
        """Return the connections of the running loop."""
        return [link for wire in self._wires.values() for link in wire.links()]

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for wire in self._wires.values():
            wire.close()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        for wire in self._wires.values():
            wire.reset()
