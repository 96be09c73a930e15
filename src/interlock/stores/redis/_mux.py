"""For tasks, in place of a pool: one connection for all of a loop; replies come in the order of the requests.

Waiting for a reply costs a task nothing, so requests share a connection.  Whoever stops waiting leaves a place in the
line of replies that is skipped, and its `undo` follows on the same connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from interlock.remote.failures import ConnectionEnded, Unreachable, closed, ended, no_answer
from interlock.runtime import clock
from interlock.stores.redis.errors import garbled, refusal
from interlock.stores.redis.resp import MISSING, Command, Garbage, Parser, ReplyError
from interlock.stores.redis.scripts import with_source


class Request:
    """What was sent, and who waits for its replies.

    Attributes:
        future: of the reply, which may be a ReplyError.
        deadline: until when it is waited for.
        missing: so many replies have not come yet.
        replies: those that have, where there are several.
    """

    __slots__ = ("deadline", "future", "missing", "replies")

    def __init__(self, future: "asyncio.Future[Any]", deadline: float, missing: int) -> None:
        self.future = future
        self.deadline = deadline
        self.missing = missing
        self.replies: list[Any] | None = None if missing == 1 else []


class Dials(Protocol):
    """What makes connections to one server."""

    where: str
    settings: Any

    async def open(self, deadline: float) -> Any:
        """Return a connection that is ready."""


class Mux:
    """One connection of a loop, after login.

    Args:
        stream: the connection.
        where: the server, for messages.
        io_timeout: seconds to wait for a reply.

    Attributes:
        good: False if no request may be sent over it any more.
        closed: True if nothing comes any more either.
    """

    def __init__(self, stream: Any, where: str, io_timeout: float) -> None:
        self._stream = stream
        self._where = where
        self._io_timeout = io_timeout
        self._loop = asyncio.get_running_loop()
        self._parser = Parser()
        self._line: deque[Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.closed = False
        self.good = True
        stream.divert(self._received, self._ended)

    def post(self, data: bytes, replies: int, deadline: float) -> "asyncio.Future[Any]":
        """Send; return what will have the reply.

        Raises:
            ConnectionEnded: it has ended already.
        """
        if self.closed:
            raise ended(self._where)
        self._stream.write(data)
        request = Request(self._loop.create_future(), deadline, replies)
        self._line.append(request)
        if self._timer is None or deadline < self._timer_at:
            self._look_at_clock()
        return request.future

    def forget(self, undo: bytes) -> None:
        """Send what nobody waits for."""
        if not self.closed:
            self.post(undo, 1, clock.now() + self._io_timeout).cancel()

    def _look_at_clock(self) -> None:
        """Tell those whose time is over; one timer for all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = clock.now()
        next = now + self._io_timeout
        for request in self._line:
            if request.future.done():
                continue
            if request.deadline <= now:
                request.future.set_exception(no_answer(self._where, self._io_timeout))
            elif request.deadline < next:
                next = request.deadline
        if self._line:
            if self._line[0].deadline + self._io_timeout <= now:
                self.close()  # nothing came for long
                return
            self._timer_at = next
            self._timer = self._loop.call_later(max(0.0, next - now), self._look_at_clock)

    def _received(self, data: bytes) -> None:
        if data[:1] == b":" and data[1:-2].isdigit() and data[-2:] == b"\r\n" and len(self._line) == 1:
            self._answer(int(data[1:-2]))
            return
        self._parser.feed(data)
        try:
            while (reply := self._parser.next()) is not MISSING:
                self._answer(reply)
        except (Garbage, IndexError) as error:
            found = error if isinstance(error, Garbage) else Garbage(data[:60])
            self._fail(garbled(self._where, found))

    def _answer(self, reply: Any) -> None:
        request = self._line[0]
        request.missing -= 1
        if request.replies is not None:
            request.replies.append(reply)
        if not request.missing:
            self._line.popleft()
            if not request.future.done():
                request.future.set_result(reply if request.replies is None else request.replies)

    def _ended(self) -> None:
        self._fail(ended(self._where))

    def _fail(self, error: Exception) -> None:
        self.close()
        while self._line:
            future = self._line.popleft().future
            if not future.done():
                future.set_exception(type(error)(*error.args))

    def retire(self) -> None:
        """Send no request any more; close when those that were sent have had their time."""
        if self.good:
            self.good = False
            self._loop.call_later(self._io_timeout, self.close)

    def close(self) -> None:
        """Close; what was written goes out before."""
        self.good = False
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stream.close()


class MuxPool:
    """As a pool, for the tasks of one loop; the connection is made when it is needed.

    Args:
        dialer: makes connections.
    """

    def __init__(self, dialer: Dials) -> None:
        self._dialer = dialer
        self._mux: Mux | None = None
        self._retired: list[Mux] = []  # they still wait for replies
        self._connecting: asyncio.Task[Mux] | None = None
        self.closed = False

    async def ask(self, command: Command, deadline: float, undo: Callable[[], Command] | None = None) -> Any:
        """As `AsyncPool.ask`."""
        mux = self._mux
        if mux is None or not mux.good:
            mux = await self._connected(deadline)
        try:
            reply = await mux.post(command.data, command.replies, deadline)
            if type(reply) is ReplyError and str(reply).startswith("NOSCRIPT"):
                reply = await mux.post(with_source(command.data), 1, deadline)
        except BaseException as error:
            if undo is not None and not isinstance(error, ConnectionEnded):
                mux.forget(with_source(undo().data))
            if not isinstance(error, asyncio.CancelledError):
                mux.retire()
            raise
        if type(reply) is ReplyError:
            refused = refusal(reply, self._dialer.where, command.line)
            if refused.is_away:
                self.distrust()
            raise refused
        return reply

    async def _connected(self, deadline: float) -> Mux:
        """Return a connection; all who wait for one share the attempt to make it."""
        joined = self._connecting is not None
        try:
            mux = await self._shared(deadline)
        except Unreachable:
            if not joined or clock.now() >= deadline:
                raise
            mux = await self._shared(
                deadline
            )  # that attempt had the deadline of who began it, this request has its own
        return mux

    async def _shared(self, deadline: float) -> Mux:
        if self.closed:
            raise closed()
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect(deadline))
            self._connecting.add_done_callback(self._made)
        mux = await asyncio.shield(self._connecting)
        if self.closed:
            raise closed()
        return mux

    async def _connect(self, deadline: float) -> Mux:
        connection = await self._dialer.open(deadline)
        settings = self._dialer.settings
        return Mux(connection.stream, self._dialer.where, settings.io_timeout)

    def _made(self, task: "asyncio.Task[Mux]") -> None:
        self._connecting = None
        if task.cancelled() or task.exception() is not None:
            return  # whoever waits is told
        if self._mux is not None:
            self._retired = [each for each in (*self._retired, self._mux) if not each.closed]
        self._mux = task.result()
        if self.closed:
            self._mux.close()

    def distrust(self) -> None:
        """Use the connection no more that there is now."""
        if self._mux is not None:
            self._mux.retire()

    def rest(self) -> None:
        """Nothing: there is one connection."""

    def close(self) -> None:
        """Close it."""
        self.closed = True
        for each in (*self._retired, *([] if self._mux is None else [self._mux])):
            each.close()
        self._mux, self._retired = None, []  # where the loop has ended, the socket is closed with the object
