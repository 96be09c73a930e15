"""How waiting tasks hear that they were promoted: one connection of each event loop listens."""

import asyncio
from time import monotonic
from typing import Any

from interlock.core.errors import StoreError
from interlock.runtime.shared import SharedWork
from interlock.stores.postgresql.sessions import POOLED, RETRY, SILENCE
from interlock.stores.sql.waiters import Waiters


class _Listening:
    """A connection that listens.

    Args:
        connection: an `AsyncConnection`, or what has the same methods.
        channel: what it is to listen to.
        waiters: whom to tell.
        io_timeout: seconds to wait for what it tells itself.
    """

    def __init__(self, connection: Any, channel: str, waiters: Waiters, io_timeout: float) -> None:
        self.connection = connection
        self._channel = channel
        self._waiters = waiters
        self._io_timeout = io_timeout
        self._heard_at = monotonic()
        self._asked_at = 0.0
        self._timer = connection.loop.call_later(SILENCE, self._look)

    async def start(self) -> bool:
        """Listen; False if a pooler lies between, which takes messages to others."""
        listens: bool = await self.connection.listen(self._channel, self._io_timeout, self._hear, self._over)
        return listens

    def _hear(self, message: str) -> None:
        self._heard_at, self._asked_at = monotonic(), 0.0
        self._waiters.notify_message(message)

    def _over(self) -> None:
        """Let all look for themselves: the connection has ended, or does not hear any more."""
        self.close()
        self._waiters.wake_all()

    def _look(self, doubts: bool = False) -> None:
        """See that it still hears, by telling itself something after a silence."""
        self._timer.cancel()
        if self.connection.ended:
            return
        now = monotonic()
        if self._asked_at:
            if now - self._asked_at >= self._io_timeout:
                self._over()
                return
        elif doubts or (self._waiters and now - self._heard_at >= SILENCE):
            self._asked_at = now
            self.connection.ask_itself(self._channel)
            if self.connection.ended:
                self._over()
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
        self._listening: dict[asyncio.AbstractEventLoop, _Listening] = {}
        self._opening = SharedWork(self._listen, "interlock-listens")
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
        listening = self._listening.get(asyncio.get_running_loop())
        return listening is not None and not listening.connection.ended

    async def aask(self, _: Any) -> None:
        """Listen, unless that is done already or was tried a moment ago."""
        if self._opening.underway() or not (self.live or self._closed or monotonic() < self._retry_at):
            await self._opening.done()

    async def _listen(self) -> None:
        if self._closed:
            return
        self._retry_at = monotonic() + RETRY
        try:
            connection = await self._factory.aconnect()
        except StoreError:
            return  # whoever waits asks the store soon, and is told there
        listening = _Listening(connection, self._channel, self._waiters, self._factory.io_timeout)
        try:
            listens = await listening.start()
            if connection.cancelled is not None:
                raise connection.cancelled
        except StoreError:
            listening.close()
            return
        except BaseException:
            listening.close()
            raise
        if not listens:
            self._retry_at = monotonic() + POOLED
        if not listens or self._closed:
            listening.close()
            return
        for old in [old for old in list(self._listening) if old.is_closed()]:
            ended = self._listening.pop(old, None)  # another loop's thread may clear away at the same time
            if ended is not None:
                ended.close()
        self._retry_at = 0.0
        self._listening[connection.loop] = listening
        if self._subscribed:
            self._waiters.wake_all()  # what was said meanwhile was not heard
        self._subscribed = True

    def suspect(self) -> None:
        """As `Listener.suspect`."""
        listening = self._listening.get(asyncio.get_running_loop())
        if listening is not None:
            listening.doubt()

    def leave_loop(self) -> None:
        """Close what belongs to the running loop, which ends."""
        for task in self._opening.underway():
            task.cancel()
        listening = self._listening.pop(asyncio.get_running_loop(), None)
        if listening is not None:
            listening.close()

    def close(self) -> None:
        """As `Listener.close`."""
        self._closed = True
        for loop, listening in list(self._listening.items()):
            try:
                loop.call_soon_threadsafe(listening.close)
            except RuntimeError:
                listening.close()  # its loop has ended

    def reset(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        self._inherited.append(self._listening)
        self._start_afresh()
