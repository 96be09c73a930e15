"""Connections of asyncio tasks: one for all tasks of a loop, on which commands follow each other without waiting."""

import asyncio
import math
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from interlock._redis import limit
from interlock._redis.clients import ConnectionFactory, beside
from interlock._redis.errors import NoRoom, code_of, full, is_full, refuse
from interlock._redis.keepalive import keep_alive
from interlock._redis.message import Message, NoAnswer, broken, garbled, no_answer, unreachable
from interlock._redis.pipeline import Batch
from interlock._redis.primary import IDENTITY, Identity
from interlock._redis.resp import MISSING, Push, ReplyError, pack, parser
from interlock._redis.scripts import with_source, without_memory
from interlock.core.claims import Claim
from interlock.core.errors import StoreError

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
        if not self.ended:
            self._transport.write(command)
        return self.expect(io_timeout)

    def post_all(self, commands: bytes, number: int, io_timeout: float) -> "list[asyncio.Future[Any]]":
        """Send so many commands and return what will have the replies."""
        if not self.ended:
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
            self._waiting.append(self._loop.create_future())  # nobody waits for its reply
            self._deadlines.append(math.inf)
            command = ASKING + command
        return await self.post(command, io_timeout)

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
            self._loop.call_soon(self._close_unless_owned)  # who waited is told first, and may become an owner
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

    def leave_late(self, owner: str, command: bytes) -> None:
        """Send a command behind one that had no answer, without waiting for the reply; the last owner closes.

        Where the connection has not ended, whatever is said next goes this way by itself.
        """
        self.owners.discard(owner)
        if self.ended:
            if not self._transport.is_closing():
                self._transport.write(command)
            self._close_unless_owned()

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

    def forget_ended_loops(self) -> None:
        """Give up what belongs to loops that were closed without it, so that neither they nor its files stay."""
        for connection in [connection for connection in self._open_connections if connection._loop.is_closed()]:
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
            if not loop.is_closed():
                task.cancel()
        self.forget_ended_loops()
        for connection in list(self._open_connections):
            connection.close()
        self.ready.clear()
        self._recent = None

    def forget(self) -> None:
        """In a forked child: leave the connections to the parent."""
        for connection in self._open_connections:
            connection.forget()


def _nobody_cares() -> None:
    """Take the news of another primary where there is no subscription."""


class AsyncPool:
    """The connections to one server, for asyncio tasks: one for each loop.

    Args:
        factory: how to make them.

    Attributes:
        nodes: as `Pool.nodes`.
        moved: called when there is another primary than before.
    """

    nodes: Any = None
    follows = False  # where a name has moved to

    def __init__(self, factory: ConnectionFactory) -> None:
        self.factory = factory
        self._identity = Identity()
        self.moved: Callable[[], object] = _nobody_cares
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._connections: PerLoop[AsyncConnection] = PerLoop(self._open)
        self._late: dict[str, list[AsyncConnection]] = {}

    async def _open(self) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.factory.io_timeout
        while True:
            connection = AsyncConnection(self.factory)
            try:
                await connection.open()
                await self._meet(connection)
                break
            except NoRoom:  # until connections of others have ended
                if loop.time() + limit.PAUSE >= end:
                    raise
                await asyncio.sleep(random.uniform(0.5, 1.0) * limit.PAUSE)
        connection._used = loop.time()
        connection.close_when_idle()
        return connection

    async def _meet(self, connection: AsyncConnection) -> None:
        """See whether a new connection leads to another primary than those before it.

        Raises:
            NoRoom: the server has too many connections, and ends this one.
        """
        try:
            reply = await connection.ask(IDENTITY)
            if isinstance(reply, ReplyError) and is_full(reply):
                raise full(self.factory.where, reply)
        except BaseException:
            connection.close()
            raise
        if self._identity.differs(reply):
            self.distrust()

    async def aask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """Send a command and return the reply.

        Raises:
            Unreachable: nothing was sent.
            UnknownOutcome: it was sent, and no reply came.
            Refused: the server's answer is no.
        """
        connection = self._connections.here() or await self._connections.get()
        return await self._rest(
            connection, message, connection.ask(message.command, asking, message.io_timeout), once_more, asking
        )

    def exchange(self, command: bytes, line: str, owner: str | None) -> Coroutine[Any, Any, Any]:
        """As `aask`, sent at once if the connection is open; to be awaited."""
        connection = self._connections.here()
        message = Message(command, line, owner)
        if connection is None:
            return self.aask(message)
        return self._rest(connection, message, connection.post(command), True, False)

    async def _rest(
        self, connection: AsyncConnection, message: Message, coming: Awaitable[Any], once_more: bool, asking: bool
    ) -> Any:
        """Wait for a reply."""
        owner = message.owner
        try:
            reply = await coming
        except (NoAnswer, asyncio.CancelledError):
            if owner is not None:
                self._late.setdefault(owner, []).append(connection)
                connection.owners.add(owner)
            raise
        if type(reply) is int or not isinstance(reply, ReplyError):
            return reply
        if is_full(reply):
            connection.close()
            raise full(self.factory.where, reply) from reply
        return await self._refused(message, reply, once_more, asking)

    async def aask_all(self, batch: Batch) -> list[Any]:
        """As `renewing.Pipeline.ask`."""
        try:
            connection = self._connections.here() or await self._connections.get()
        except StoreError as error:
            return [error] * len(batch.messages)
        coming = connection.post_all(batch.data(), batch.replies(), batch.io_timeout(connection.factory.io_timeout))
        replies = await asyncio.gather(*coming, return_exceptions=True)
        return replies[1::2] if batch.asking else replies

    @property
    def has_late(self) -> bool:
        """True while a request had no answer that may still put a claim into a line."""
        return bool(self._late)

    def leave_late(self, owner: str, command: bytes) -> bool:
        """As `Pool.leave_late`."""
        late = self._late.pop(owner, ())
        for connection in late:
            connection.leave_late(owner, command)
        return any(connection.ended for connection in late)

    async def _refused(self, message: Message, error: ReplyError, once_more: bool, asking: bool) -> Any:
        code = code_of(error)
        if code == "NOSCRIPT":
            return await self.aask(message._replace(command=with_source(message.command)), asking=asking)
        if code == "OOM" and (excepted := without_memory(message.command)) is not None:
            return await self.aask(message._replace(command=excepted), asking=asking)
        if code == "READONLY":
            self.drop()  # after a fail-over the old primary is a replica; connecting anew finds the new one
            if once_more:
                return await self.aask(message, once_more=False)
        return refuse(error, self.factory.where, message.line)

    def beside(self, where: str, io_timeout: float) -> "AsyncPool":
        """Return connections to another server of the same group, by its host and port; the caller closes them."""
        return AsyncPool(beside(self.factory, where, io_timeout))

    def batches(self, claims: Sequence[Claim], most: int) -> list[Sequence[Claim]]:
        """Return which claims may be renewed by one call."""
        return [claims[start : start + most] for start in range(0, len(claims), most)]

    def distrust(self) -> None:
        """There is another primary: what is connected leads to the old one."""
        for connection in self._connections.take_all():
            connection.end()
        self.moved()

    def drop(self) -> None:
        """Close the calling loop's connection."""
        connection = self._connections.ready.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            connection.close()

    def opening(self) -> "list[asyncio.Task[Any]]":
        """Return the connections that are being made for the running loop."""
        return [*self._connections.opening()]

    def connections(self) -> list[AsyncConnection]:
        """Return the connections of the running loop."""
        return self._connections.connections()

    def close(self) -> None:
        """Close all connections whose loops still run."""
        self._connections.close()
        self._late.clear()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        self._connections.forget()
        self._start_afresh()

    def node_of(self, line: str) -> None:
        """As `Pool.node_of`."""

    def at(self, node: None) -> "AsyncPool":
        """As `Pool.at`."""
        return self

    def look_again_soon(self) -> None:
        """As `Pool.look_again_soon`."""
