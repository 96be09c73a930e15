"""Something of which each event loop has its own."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from interlock._redis.aconnection import AsyncConnection
from interlock.core.errors import StoreError
from interlock.runtime.shared import SharedWork, call_on

C = TypeVar("C", bound=AsyncConnection)


class PerLoop(Generic[C]):
    """Connections that are opened once for each event loop, by a task of its own.

    A caller that is cancelled meanwhile takes nothing from the others; and client libraries do not bear it well to be
    cancelled while they connect.

    Args:
        open: makes one for the running loop.
    """

    def __init__(self, open: Callable[[], Coroutine[Any, Any, C]]) -> None:
        self._open = open
        self.ready: dict[asyncio.AbstractEventLoop, C] = {}
        self._opening = SharedWork(self._open_one, "interlock-connects")
        self._recent: C | None = None
        self._open_connections: set[C] = set()  # also those that were replaced and are not closed yet
        self.closed = False

    def here(self) -> C | None:
        """Return the one of the running loop, if it is open."""
        loop = asyncio.get_running_loop()
        connection = self._recent
        if connection is None or connection.ended or connection._loop is not loop:
            connection = self._recent = self.ready.get(loop)
        return connection if connection is not None and not connection.ended else None

    async def get(self) -> C:
        """Return the one of the running loop, which is opened if there is none.

        Raises:
            StoreError: all were closed; or it can't be opened.
        """
        if self._opening.underway():
            try:
                return await self._opening.done()
            except StoreError:
                if self.closed:
                    raise
                # It began before this call: what it met may be over.
        return await self._opening.done()

    async def _open_one(self) -> C:
        if self.closed:
            raise StoreError("this connection was closed: connect again")
        self.forget_ended_loops()
        connection = await self._open()
        self._open_connections.add(connection)
        connection.gone.add_done_callback(lambda _: self._open_connections.discard(connection))
        if self.closed:
            connection.close()
        else:
            self.ready[asyncio.get_running_loop()] = connection
        return connection

    def take_all(self) -> list[C]:
        """Return what is open in any loop, and give it to nobody from now on."""
        connections = list(self.ready.values())
        self.ready.clear()
        return connections

    def forget_ended_loops(self, owned: bool = False) -> None:
        """Give up what belongs to loops that were closed without it, so that neither they nor its files stay.

        Args:
            owned: True for what has owners, too, who still have to leave.
        """
        ended = [each for each in list(self._open_connections) if each._loop.is_closed()]
        for connection in [each for each in ended if owned or not each.owners]:
            self._open_connections.discard(connection)
            connection.abandon()
        for loop in [loop for loop in list(self.ready) if loop.is_closed()]:
            self.ready.pop(loop, None)
        if self._recent is not None and self._recent.ended:
            self._recent = None

    def opening(self) -> "list[asyncio.Task[C]]":
        """Return what is being opened for the running loop."""
        return self._opening.underway()

    def connections(self) -> list[C]:
        """Return what is open in the running loop."""
        loop = asyncio.get_running_loop()
        return [connection for connection in list(self._open_connections) if connection._loop is loop]

    def all(self) -> list[C]:
        """Return what is open, in any loop."""
        return list(self._open_connections)

    def close(self) -> None:
        """Close all whose loops still run, and give up what is being opened."""
        self.closed = True
        self._opening.cancel()
        self.forget_ended_loops(owned=True)
        for connection in list(self._open_connections):
            connection.ended = True
            call_on(connection._loop, connection.close)
        self.ready.clear()
        self._recent = None

    def forget(self) -> None:
        """In a forked child: leave the connections to the parent."""
        for connection in list(self._open_connections):
            connection.forget()


async def leave(pool: Any) -> None:
    """Close what a client library's own pool has open in the running loop, and give up what is of closed loops.

    The library asks Sentinels over such connections, and knows of one loop only.

    Args:
        pool: of redis-py or valkey-py, for asyncio.
    """
    for connection in [*pool._available_connections, *pool._in_use_connections]:  # also of tasks that were cancelled
        loop = None if connection._writer is None else connection._writer._loop
        if loop is asyncio.get_running_loop():
            await connection.disconnect()
        elif loop is not None and loop.is_closed():
            with suppress(Exception):  # it has ended already; or the loop is of another make, which has closed it
                connection._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            connection._writer = connection._reader = None
