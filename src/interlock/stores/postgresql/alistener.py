"""How waiting tasks hear that they were promoted: one connection of each event loop listens."""

import asyncio
from time import monotonic
from typing import Any

from psycopg import OperationalError

from interlock.core.errors import StoreError
from interlock.stores.postgresql.apool import AsyncConnection
from interlock.stores.postgresql.listener import POOLED, RETRY, SILENCE, ask_itself, hear, is_pooled, listen
from interlock.stores.postgresql.sessions import WHOSE
from interlock.stores.sql.waiters import Waiters


class _Listening:
    """A connection that listens.

    Args:
        connection: the connection, on which nothing else is asked any more.
        channel: it listens to.
        waiters: whom to tell.
        patience: seconds to wait for what it tells itself.
    """

    def __init__(self, connection: AsyncConnection, channel: str, waiters: Waiters, io_timeout: float) -> None:
        self.connection = connection
        self._channel = channel
        self._waiters = waiters
        self._io_timeout = io_timeout
        self._heard_at = monotonic()
        self._asked_at = 0.0
        connection.heard = self._hear
        self._timer = connection.loop.call_later(SILENCE, self._look)
        self._hear()  # something may have come with the answer to LISTEN

    def _hear(self) -> None:
        try:
            if hear(self.connection.pgconn, self._waiters):
                self._heard_at, self._asked_at = monotonic(), 0.0
        except OperationalError:
            self.connection.ended = True
        if self.connection.ended:
            self.close()
            self._waiters.let_all_look()

    def _look(self, doubts: bool = False) -> None:
        """See that it still hears, by telling itself something after a silence."""
        self._timer.cancel()
        if self.connection.ended:
            return
        now = monotonic()
        if self._asked_at:
            if now - self._asked_at >= self._io_timeout:
                self.close()
                self._waiters.let_all_look()
                return
        elif doubts or (self._waiters and now - self._heard_at >= SILENCE):
            self._asked_at = now
            try:
                ask_itself(self.connection.pgconn, self._channel)
            except OperationalError:
                self.close()
                return
        after = self._io_timeout if self._asked_at else SILENCE
        self._timer = self.connection.loop.call_later(after, self._look)

    def doubt(self) -> None:
        """Find out soon whether it still hears."""
        self._look(True)

    def close(self) -> None:
        """Close the connection."""
        self._timer.cancel()
        self.connection.close()


class TaskListener:
    """The listener of one store, for tasks; nobody is refused anything if it is deaf: then waiters look often.

    Args:
        factory: what makes the connections.
    """

    def __init__(self, factory: Any) -> None:
        self._factory = factory
        self._inherited: list[Any] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._ears: dict[asyncio.AbstractEventLoop, _Listening] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._retry_at = 0.0
        self._subscribed = False
        self._closed = False

    def start(self, channel: str, waiters: Waiters) -> None:
        """As `Listener.start`."""
        self._channel = channel
        self._waiters = waiters

    @property
    def live(self) -> bool:
        """As `Listener.live`, for the running loop."""
        listening = self._ears.get(asyncio.get_running_loop())
        return listening is not None and not listening.connection.ended

    async def aask(self, _: Any) -> None:
        """Listen, unless that is done already or was tried a moment ago."""
        loop = asyncio.get_running_loop()
        task = self._opening.get(loop)
        if task is None:
            if self.live or self._closed or monotonic() < self._retry_at:
                return
            task = self._opening[loop] = loop.create_task(self._listen(), name="interlock-listens")
            task.add_done_callback(lambda _: self._opening.pop(loop, None))
        await asyncio.shield(task)  # who is cancelled takes nothing from the others

    async def _listen(self) -> None:
        self._retry_at = monotonic() + RETRY
        io_timeout = self._factory.io_timeout
        try:
            connection = AsyncConnection(await self._factory.adial(), self._factory.where)
        except StoreError:
            return  # whoever waits asks the store soon, and is told there
        try:
            until = monotonic() + io_timeout
            rows = await connection.exchange(WHOSE, until, io_timeout)
            if is_pooled(connection.pgconn, rows):
                self._retry_at = monotonic() + POOLED
                connection.close()
                return
            await connection.exchange(listen(self._channel), until, io_timeout)
            if connection.cancelled is not None:
                raise connection.cancelled
        except StoreError:
            connection.close()
            return
        except BaseException:
            connection.close()
            raise
        if self._closed:
            connection.close()
            return
        for old in [old for old in list(self._ears) if old.is_closed()]:
            ended = self._ears.pop(old, None)  # another loop's thread may clear away at the same time
            if ended is not None:
                ended.close()
        self._retry_at = 0.0
        self._ears[connection.loop] = _Listening(connection, self._channel, self._waiters, io_timeout)
        if self._subscribed:
            self._waiters.let_all_look()  # what was said meanwhile was not heard
        self._subscribed = True

    def suspect(self) -> None:
        """As `Listener.suspect`."""
        listening = self._ears.get(asyncio.get_running_loop())
        if listening is not None:
            listening.doubt()

    def leave_loop(self) -> None:
        """Close what belongs to the running loop, which ends."""
        loop = asyncio.get_running_loop()
        task = self._opening.get(loop)
        if task is not None:
            task.cancel()
        listening = self._ears.pop(loop, None)
        if listening is not None:
            listening.close()

    def close(self) -> None:
        """As `Listener.close`."""
        self._closed = True
        for loop, listening in list(self._ears.items()):
            try:
                loop.call_soon_threadsafe(listening.close)
            except RuntimeError:
                listening.close()  # its loop has ended

    def reset(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        self._inherited.append(self._ears)
        self._start_afresh()
