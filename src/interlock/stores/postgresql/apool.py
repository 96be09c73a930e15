"""Statements on a database, for asyncio tasks: a bounded number of connections for each event loop."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.runtime.aio import arun
from interlock.runtime.shared import retrieve
from interlock.stores.postgresql.sessions import Row, Transactions
from interlock.stores.sql.pool import GROW, put_back, said_on
from interlock.stores.sql.problems import Full, Refused, none_free
from interlock.stores.sql.statements import Statement


class _Here:
    """The connections of one loop."""

    def __init__(self) -> None:
        self.idle: list[Any] = []
        self.all: set[Any] = set()
        self.used = 0  # lent, or being made
        self.age = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # with how many may be used for it

    def put_back(self, connection: Any) -> None:
        for each in put_back(self.idle, connection):
            self.all.discard(each)
            each.close()

    def wake_one(self) -> None:
        for waiter in self.waiting:
            most, future = waiter
            if self.used < most and not future.done() and not future.get_loop().is_closed():
                self.waiting.remove(waiter)
                future.set_result(None)
                return


class AsyncPool:
    """The connections of one store, as an `effects.Server`.

    Args:
        factory: what makes them, by `aconnect`: an `AsyncConnection`, or what has the same methods.
    """

    def __init__(self, factory: Any) -> None:
        self.factory = factory
        self._most = factory.options.most
        self._transactions = Transactions(factory.options, factory.where)
        self._loops: dict[asyncio.AbstractEventLoop, _Here] = {}
        self._inherited: list[Any] = []
        self._closed = False

    def _here(self) -> _Here:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            here = self._loops[loop] = _Here()
            for old in [old for old in list(self._loops) if old.is_closed()]:
                ended = self._loops.pop(old, None)  # another loop's thread may clear away at the same time
                for connection in list(ended.all) if ended is not None else ():
                    connection.close()
        return here

    async def aask(self, statement: Statement) -> list[Row]:
        """Perform a statement as a transaction of its own, and return its rows.

        Raises:
            StoreError: as `SqlQueue` says.
        """
        io_timeout = min(self.factory.io_timeout, statement.io_timeout or self.factory.io_timeout)
        deadline = monotonic() + io_timeout
        here = self._here()
        connection = await self._take(here, deadline, io_timeout, self._most + statement.reserved)
        connection.cancelled, age, sound = None, here.age, False
        try:
            talk = self._transactions.perform(statement)
            rows = await arun(said_on(connection, talk, deadline, io_timeout))
            sound = True
        except (Refused, UnknownOutcome) as error:
            sound = isinstance(error, Refused)
            if not sound:
                self._drop(here)  # what broke one has broken the others
            if connection.cancelled is not None:
                raise connection.cancelled from error
            raise
        finally:
            here.used -= 1
            if sound and age == here.age and not self._closed and connection.is_sound():
                here.put_back(connection)
            else:
                here.all.discard(connection)
                connection.close()
            here.wake_one()
        if connection.cancelled is not None:
            raise connection.cancelled
        return rows

    async def _take(self, here: _Here, deadline: float, io_timeout: float, most: int) -> Any:
        asked = monotonic()
        while True:
            if self._closed:
                raise StoreError("this connection was closed: connect again")
            while here.idle and here.used < most:
                connection = here.idle.pop()
                if not connection.ended:
                    here.used += 1
                    return connection
                here.all.discard(connection)
                connection.close()
            now = monotonic()
            if not here.used or (here.used < most and now - asked >= GROW):
                here.used += 1
                task = asyncio.get_running_loop().create_task(self._open(here), name="interlock-connects")
                task.add_done_callback(retrieve)
                try:
                    await asyncio.shield(task)  # who is cancelled leaves the connection to others
                except Full:
                    if not here.idle and (not here.used or monotonic() + GROW > deadline):
                        raise
                    asked = monotonic()  # the server has none left: others of ours will be free
                continue
            if now >= deadline:
                raise none_free(self._most, "loop", self.factory.where, io_timeout)
            until = deadline if here.used >= most else min(deadline, asked + GROW)
            await _first_of(here, most, max(0.0005, until - now))

    async def _open(self, here: _Here) -> None:
        try:
            connection = await self.factory.aconnect()
            here.all.add(connection)
            if self._closed:
                connection.close()
            else:
                here.put_back(connection)
        finally:
            here.used -= 1
            here.wake_one()

    def _drop(self, here: _Here) -> None:
        here.age += 1
        idle, here.idle = here.idle, []
        for connection in idle:
            here.all.discard(connection)
            connection.close()

    def rest(self) -> None:
        """Nothing: connections of tasks are few, and end with their loop."""

    def close(self) -> None:
        """Close all; what is in use is closed when it comes back."""
        self._closed = True
        for loop, here in list(self._loops.items()):
            if loop.is_closed() or loop is _running():
                self._drop(here)
            else:
                try:
                    loop.call_soon_threadsafe(self._drop, here)
                except RuntimeError:
                    pass  # it has just ended

    def leave_loop(self) -> None:
        """Close the connections of the running loop, which ends."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        for connection in list(here.all) if here is not None else ():
            connection.close()

    def reset(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        self._inherited.append(self._loops)
        self._loops = {}


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _first_of(here: _Here, most: int, seconds: float) -> None:
    """Wait until a connection is given back and less than `most` are used, or the time is over."""
    future = asyncio.get_running_loop().create_future()
    waiter = most, future
    here.waiting.append(waiter)
    try:
        async with asyncio.timeout(seconds):
            await future
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        if future.done() and not future.cancelled():
            here.wake_one()  # it was meant for somebody
        raise
    finally:
        if waiter in here.waiting:
            here.waiting.remove(waiter)
