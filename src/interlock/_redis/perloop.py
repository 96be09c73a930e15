"""Something of which each event loop has its own."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from interlock._redis.aconnection import AsyncConnection
from interlock.core.errors import StoreError

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
        self._tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[C]] = {}
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
        if self.closed:
            raise StoreError("this connection was closed: connect again")
        loop = asyncio.get_running_loop()
        task = self._tasks.get(loop)
        if task is not None:
            try:
                return await self._wait_for(task)
            except StoreError:
                if self.closed:
                    raise
                task = self._tasks.get(loop)  # it began before this call: what it met may be over
        if task is None:
            self.forget_ended_loops()
            task = self._tasks[loop] = loop.create_task(self._open(), name="interlock-connects")
            task.add_done_callback(self._opened)
        return await self._wait_for(task)

    async def _wait_for(self, task: "asyncio.Task[C]") -> C:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self.closed:  # not who waits for it was cancelled
                raise StoreError("this connection was closed: connect again") from None
            raise

    def _opened(self, task: "asyncio.Task[C]") -> None:
        loop = task.get_loop()
        self._tasks.pop(loop, None)
        if task.cancelled() or task.exception() is not None:
            return
        connection = task.result()
        self._open_connections.add(connection)
        connection.gone.add_done_callback(lambda _: self._open_connections.discard(connection))
        if self.closed:
            connection.close()
        else:
            self.ready[loop] = connection

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
        ended = [each for each in self._open_connections if each._loop.is_closed()]
        for connection in [each for each in ended if owned or not each.owners]:
            self._open_connections.discard(connection)
            connection.abandon()
        for table in (self.ready, self._tasks):
            for loop in [loop for loop in table if loop.is_closed()]:
                table.pop(loop, None)
        if self._recent is not None and self._recent.ended:
            self._recent = None

    def opening(self) -> "list[asyncio.Task[C]]":
        """Return what is being opened for the running loop."""
        task = self._tasks.get(asyncio.get_running_loop())
        return [] if task is None else [task]

    def connections(self) -> list[C]:
        """Return what is open in the running loop."""
        loop = asyncio.get_running_loop()
        return [connection for connection in self._open_connections if connection._loop is loop]

    def all(self) -> list[C]:
        """Return what is open, in any loop."""
        return list(self._open_connections)

    def close(self) -> None:
        """Close all whose loops still run, and give up what is being opened."""
        self.closed = True
        for loop, task in list(self._tasks.items()):
            call_on(loop, task.cancel)
        self.forget_ended_loops(owned=True)
        for connection in list(self._open_connections):
            connection.ended = True
            call_on(connection._loop, connection.close)
        self.ready.clear()
        self._recent = None

    def forget(self) -> None:
        """In a forked child: leave the connections to the parent."""
        for connection in self._open_connections:
            connection.forget()


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function in an event loop: at once if it is the running one, not at all if it is closed."""
    if loop is asyncio._get_running_loop():
        function()
        return
    with suppress(RuntimeError):  # it is closed
        loop.call_soon_threadsafe(function)


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
