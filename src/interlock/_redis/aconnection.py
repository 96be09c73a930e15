"""A connection of one event loop."""

import asyncio
import math
import socket
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from interlock._redis import limit
from interlock._redis.clients import ConnectionFactory
from interlock._redis.errors import full, is_full
from interlock._redis.keepalive import keep_alive
from interlock._redis.message import broken, garbled, no_answer, unreachable
from interlock._redis.resp import MISSING, Push, pack, parser
from interlock.runtime.shared import call_on

ASKING = pack("ASKING")


class AsyncConnection(asyncio.Protocol):
    """One connection; the library has connected it and logged in.

    Attributes:
        ended: True when nothing more can be asked on it.
        owners: the claims whose requests on it had no answer; it stays open until they have left.
    """

    def __init__(self, factory: ConnectionFactory) -> None:
        self.factory = factory
        self.ended = False
        self.owners: set[str] = set()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._deadlines: deque[float] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._used = 0.0  # the deadline of the last command
        self.parser = parser()

    async def open(self) -> None:
        """Connect.

        Raises:
            Unreachable: it could not be done.
        """
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._raw = raw = self.factory.new_connection()
        last_words = _last_words_of(raw)
        try:
            async with asyncio.timeout(2 * self.factory.io_timeout):
                await raw.connect()
        except Exception as error:
            await raw.disconnect()
            raise (full if is_full(error, last_words) else unreachable)(self.factory.where, error) from error
        except BaseException:
            await raw.disconnect()
            raise
        del raw.disconnect
        self._transport = raw._writer.transport
        self._transport.set_protocol(self)
        keep_alive(self._transport.get_extra_info("socket"), self.factory.io_timeout)

    def post(self, command: bytes, io_timeout: float | None = None) -> "asyncio.Future[Any]":
        """Send a command and return what will have the reply."""
        if not (self.ended or self._transport.is_closing()):
            self._transport.write(command)
        return self.expect(io_timeout)

    def post_all(self, commands: bytes, number: int, io_timeout: float) -> "list[asyncio.Future[Any]]":
        """Send so many commands and return what will have the replies."""
        if not (self.ended or self._transport.is_closing()):
            self._transport.write(commands)
        return [self.expect(io_timeout) for _ in range(number)]

    def expect(self, io_timeout: float | None = None) -> "asyncio.Future[Any]":
        """Return what will have the reply to a command that was sent."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.ended:
            future.set_exception(broken(self.factory.where, None))
            return future
        self._waiting.append(future)
        # One timer for all: most replies come long before it, and a timer for each would cost more than the reply.
        self._used = moment = self._loop.time() + (io_timeout or self.factory.io_timeout)
        self._deadlines.append(moment)
        if self._timer is None or (io_timeout is not None and moment < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(moment, self._look_for_late)
        return future

    async def ask(self, command: bytes, asking: bool = False, io_timeout: float | None = None) -> Any:
        """Send a command and return the reply, which may be a ReplyError.

        Raises:
            Broken: the connection ended before the reply came.
            NoAnswer: the reply did not come in time.
        """
        if asking:
            self._expect_for_nobody()
            command = ASKING + command
        return await self.post(command, io_timeout)

    def _expect_for_nobody(self) -> None:
        """Take the next reply for one that nobody waits for: else it would be given to whoever asks after it."""
        nobody: asyncio.Future[Any] = self._loop.create_future()
        nobody.cancel()
        self._waiting.append(nobody)
        self._deadlines.append(math.inf)

    def _look_for_late(self) -> None:
        """Give up the replies that are late; look again when the next one would be."""
        self._timer = None
        now = self._loop.time()
        for future, moment in zip(self._waiting, self._deadlines, strict=True):
            if moment <= now:
                self.ended = True
                if not future.done():
                    future.set_exception(no_answer(self.factory.where, self.factory.io_timeout))
        if self.ended:
            self._loop.call_soon(self._close_unless_owned)  # the waiter is told first, and may become an owner
        upcoming = min((moment for moment in self._deadlines if moment > now), default=math.inf)
        if upcoming < math.inf:
            self._timer = self._loop.call_at(upcoming, self._look_for_late)

    def data_received(self, data: bytes) -> None:
        """Take what the server sent, and give each reply to whom it belongs."""
        try:
            if data[:1] == b":" and data[-2:] == b"\r\n" and len(self._waiting) == 1 and data.count(b"\n") == 1:
                self._answer(int(data[1:-2]))
                return
            self.parser.feed(data)
            while (reply := self.parser.next()) is not MISSING:
                if type(reply) is not Push:
                    self._answer(reply)
        except ValueError:  # Garbage, or none of the numbers
            self.is_garbled(data)

    def close_when_idle(self) -> None:
        """Close as soon as nothing was asked for long."""
        left = self._used + limit.IDLE - self._loop.time()
        if left <= 0:
            self.close()
        else:
            self._idle = self._loop.call_later(left, self.close_when_idle)

    def is_garbled(self, data: bytes) -> None:
        """End the connection, on which no reply of Redis came."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(garbled(self.factory.where, data))
        self._deadlines.clear()
        self.ended = True
        self._transport.abort()

    def _answer(self, reply: Any) -> None:
        if self._waiting:
            self._deadlines.popleft()
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell all who wait that no reply will come."""
        self.forget()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(broken(self.factory.where, error))

    def leave_late(self, owner: str, command: bytes) -> bool:
        """Send a command behind one that had no answer, without waiting for the reply; the last owner closes.

        Returns:
            False where whatever is said next goes this way by itself.
        """
        self.owners.discard(owner)
        if self._loop is asyncio.get_running_loop():
            if self.ended:
                self._say_late(command)
            return self.ended
        if self._loop.is_running():
            call_on(self._loop, partial(self._say_late, command))
        else:
            self.ended = True  # nobody else may ask on it: the reply would be taken for his
            self._say_at_rest(command)
        return True

    def _say_late(self, command: bytes) -> None:
        if not self._transport.is_closing():
            self._expect_for_nobody()
            self._transport.write(command)
        if self.ended:
            self._close_unless_owned()

    def _say_at_rest(self, command: bytes) -> None:
        """Send a command while the loop does not run, and may never do so again."""
        with suppress(Exception):  # it has ended
            if self._transport.get_extra_info("ssl_object") is None and not self._transport.get_write_buffer_size():
                with self._transport.get_extra_info("socket").dup() as spare:
                    spare.send(command)

    def _close_unless_owned(self) -> None:
        if not self.owners:
            self.close()

    def close(self) -> None:
        """Close the connection when what was written is sent."""
        self.ended = True
        self._transport.close()
        self.forget()

    def end(self) -> None:
        """Close the connection, from any loop."""
        self.ended = True
        try:
            self._loop.call_soon_threadsafe(self.close)
        except RuntimeError:
            pass  # its loop is closed

    def abandon(self) -> None:
        """End the connection, whose loop is closed and can do it no more; its file goes with the last reference."""
        try:
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        except Exception:  # it has ended already; or the loop is of another make, which has closed it
            pass
        self.forget()
        del self._transport, self.gone

    def forget(self) -> None:
        """Close nothing, because it is closed already, or, in a forked child, because it is the parent's."""
        self.ended = True
        if self._idle is not None:
            self._idle.cancel()
        self._raw._writer = self._raw._reader = None


def _last_words_of(raw: Any) -> bytearray:
    """Return what will have what the server said before a connection ended on which the library could write no more.

    A server that has too many connections says so at once, and closes.
    """
    said = bytearray()
    disconnect = raw.disconnect

    async def hear(*args: Any, **how: Any) -> None:
        said.extend(getattr(raw._reader, "_buffer", b""))
        await disconnect(*args, **how)

    raw.disconnect = hear
    return said
