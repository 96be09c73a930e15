"""One connection for all tasks of a loop; replies come in the order of requests.

A task that waits for a reply blocks no other, so all requests share a connection.  If a task stops waiting, its reply
is discarded when it comes, and its `undo` follows on the same connection.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

from interlock.core.claims import Claim
from interlock.core.failures import ConnectionEnded, Refused, Unreachable, closed, ended, no_answer
from interlock.runtime import clock
from interlock.stores.redis._aio import RECV_SIZE, AsyncStream
from interlock.stores.redis.errors import garbled
from interlock.stores.redis.resp import INCOMPLETE, Garbage, Parser, RedisCommand, Reply, only_number
from interlock.stores.redis.wire import with_source


class Mux(asyncio.BufferedProtocol):
    """One connection of an event loop, after login.

    Args:
        stream: the connection, which this object reads from now on.
        where: the server, for messages.
        io_timeout: seconds to wait for a reply.

    Attributes:
        good: False if no more requests may be sent over it.
        closed: True if no more replies will come.
    """

    def __init__(self, stream: AsyncStream, where: str, io_timeout: float) -> None:
        self._stream = stream
        self._where = where
        self._io_timeout = io_timeout
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(RECV_SIZE))
        self._parser = Parser()
        # The waiting callers: each with its deadline and number of replies.  `_parts` are the replies that the
        # first of them has received.
        self._line: deque[tuple[asyncio.Future[Reply], float, int]] = deque()
        self._parts: list[Reply] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._context = Context()
        self.closed = False
        self.good = True
        stream.give_to(self)
        self._write = stream.write

    def post(self, data: bytes, replies: int, deadline: float) -> "asyncio.Future[Reply]":
        """Send a request; return a future of the reply, a list if `replies` is more than one.

        Raises:
            ConnectionEnded: the connection has ended already.
        """
        if self.closed:
            raise ended(self._where)
        self._write(data)
        future = self._loop.create_future()
        self._line.append((future, deadline, replies))
        if self._timer is None or deadline < self._timer_at:
            self._look_at_clock()
        return future

    def _look_at_clock(self) -> None:
        """End the waits whose deadlines have passed, and set one timer for the others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = clock.now()
        waiting = [(future, deadline) for future, deadline, _ in self._line if not future.done()]
        for future, deadline in waiting:
            if deadline <= now:
                future.set_exception(no_answer(self._where, self._io_timeout))
        next = min([now + self._io_timeout, *[deadline for _, deadline in waiting if deadline > now]])
        if self._line:
            if self._line[0][1] + self._io_timeout <= now:
                self.close()  # the oldest reply is overdue by another time-out
                return
            self._timer_at = next
            self._timer = self._loop.call_later(max(0.0, next - now), self._look_at_clock, context=self._context)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return like `BufferedProtocol.get_buffer`."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Receive like `BufferedProtocol.buffer_updated`."""
        data = self._buffer[:nbytes].tobytes()
        number = only_number(data) if len(self._line) == 1 and not self._parser.unread else None
        if number is not None:
            self._answer(number)
            return
        self._parser.feed(data)
        try:
            while (reply := self._parser.next()) is not INCOMPLETE:
                self._answer(reply)
        except (Garbage, IndexError) as error:
            found = error if isinstance(error, Garbage) else Garbage(data[:60])
            self._fail(garbled(self._where, found))

    def _answer(self, reply: Reply) -> None:
        future, _, replies = self._line[0]
        if replies > 1:
            self._parts.append(reply)
            if len(self._parts) < replies:
                return
            reply, self._parts = self._parts, []
        self._line.popleft()
        if not future.done():
            future.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        """End like `Protocol.connection_lost`."""
        self._fail(ended(self._where))

    def _fail(self, error: Exception) -> None:
        self.close()
        while self._line:
            future, _, _ = self._line.popleft()
            if not future.done():
                future.set_exception(type(error)(*error.args))

    def retire(self) -> None:
        """Send no more requests; close after the time-out of those that were sent."""
        if self.good:
            self.good = False
            self._loop.call_later(self._io_timeout, self.close)

    def close(self) -> None:
        """Close the connection."""
        self.good = False
        self.closed = True
        self._stream.close()


class MuxPool:
    """A pool of one shared connection, for the tasks of one loop; it connects when needed.

    Args:
        open: makes a connection, whose `stream` is used.
        answer_to: the function `answer_to` of `_async.connection`, or its port.
        where: the server, for messages.
        io_timeout: seconds to wait for a reply.
        undo: returns the command that removes a claim.

    Attributes:
        entering: as for `AsyncPool`.
    """

    def __init__(
        self,
        open: Callable[[float], Awaitable[Any]],
        answer_to: Callable[..., Awaitable[Reply]],
        where: str,
        io_timeout: float,
        undo: Callable[[Claim], RedisCommand],
    ) -> None:
        self._open = open
        self._answer_to = answer_to
        self._where = where
        self._io_timeout = io_timeout
        self._undo = undo
        self._mux: Mux | None = None
        self._retired: list[Mux] = []  # old connections that still wait for replies
        self._connecting: asyncio.Task[Mux] | None = None
        self.entering: set[str] = set()
        self.closed = False

    async def ask(self, command: RedisCommand, deadline: float, undo: Claim | None = None) -> Reply:
        """Send like `AsyncPool.ask`."""
        mux = self._mux
        if mux is None or not mux.good:
            mux = await self._connected(deadline)
        if undo is not None and undo.id not in self.entering:
            raise closed()
        try:
            reply = await mux.post(command.data, command.replies, deadline)
            if type(reply) is int and not command.replicas:  # the most common reply
                return reply
            return await self._answer_to(command, reply, mux.post, deadline, self._where, self._io_timeout)
        except Refused as error:
            if error.is_unavailable:
                self.invalidate_connections()
            raise
        except BaseException as error:
            if undo is not None and not isinstance(error, ConnectionEnded) and not mux.closed:
                # With the source, because nobody could answer NOSCRIPT.
                mux.post(with_source(self._undo(undo).data), 1, clock.now() + self._io_timeout).cancel()
            if not isinstance(error, asyncio.CancelledError):
                mux.retire()
            raise

    async def _connected(self, deadline: float) -> Mux:
        """Return a connection; all callers that wait for one share the attempt to make it."""
        begun = self._connecting
        try:
            return await self._attempt(deadline)
        except Unreachable:
            if begun is None:
                raise
            # Another caller began the attempt, perhaps while the server was unavailable: try once more.
            return await self._attempt(clock.now() + self._io_timeout)

    async def _attempt(self, deadline: float) -> Mux:
        if self.closed:
            raise closed()
        if self._connecting is None:
            # In an empty context, which the reader of the connection keeps.
            self._connecting = Context().run(asyncio.ensure_future, self._connect(deadline))
            self._connecting.add_done_callback(self._made)
        mux = await asyncio.shield(self._connecting)
        if self.closed:
            raise closed()
        return mux

    async def _connect(self, deadline: float) -> Mux:
        connection = await self._open(deadline)
        return Mux(connection.stream, self._where, self._io_timeout)

    def _made(self, task: "asyncio.Task[Mux]") -> None:
        self._connecting = None
        if task.cancelled() or task.exception() is not None:
            return  # the callers that wait for the task get its error
        if self._mux is not None:
            self._retired = [each for each in (*self._retired, self._mux) if not each.closed]
        self._mux = task.result()
        if self.closed:
            self._mux.close()

    def invalidate_connections(self) -> None:
        """Use the present connection for no more requests."""
        if self._mux is not None:
            self._mux.retire()

    def close_idle(self) -> None:
        """Do nothing: there is only one connection."""

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        for each in (*self._retired, *([] if self._mux is None else [self._mux])):
            each.close()
        self._mux, self._retired = None, []  # after the end of the loop, the socket is closed when collected
