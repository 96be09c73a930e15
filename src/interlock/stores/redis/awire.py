"""Connections of asyncio tasks: one for all tasks of a loop, on which commands follow each other without waiting."""

import asyncio
import math
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from interlock.claims import Claim
from interlock.errors import StoreError
from interlock.stores.native import compiled
from interlock.stores.redis.clients import Dialer
from interlock.stores.redis.message import Message, NoAnswer, broken, no_answer, unreachable
from interlock.stores.redis.problems import code_of, refuse
from interlock.stores.redis.resp import MISSING, Push, ReplyError, ended_by, pack, parser
from interlock.stores.redis.scripts import with_source, without_memory

ASKING = pack("ASKING")
native = compiled("interlock.stores.redis._exchange")


class TaskLink(asyncio.Protocol):
    """One connection; the library has connected it and logged in.

    Attributes:
        ended: True when nothing more can be asked on it.
        plain: the socket's file, for the compiled way; -1 with TLS, or if there is none.
    """

    def __init__(self, recipe: Dialer) -> None:
        self.recipe = recipe
        self.ended = False
        self.plain = -1
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._deadlines: deque[float] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.parser = parser()

    async def open(self) -> None:
        """Connect.

        Raises:
            Unreachable: it could not be done.
        """
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._connection = connection = self.recipe.connection()
        try:
            async with asyncio.timeout(2 * self.recipe.patience):
                await connection.connect()
        except Exception as error:
            await connection.disconnect()
            raise unreachable(self.recipe.where, error) from error
        except BaseException:
            await connection.disconnect()
            raise
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)
        if native is not None and self._transport.get_extra_info("ssl_object") is None:
            self.plain = self._transport.get_extra_info("socket").fileno()

    def post(self, command: bytes, patience: float | None = None) -> "asyncio.Future[Any]":
        """Send a command and return what will have the reply."""
        if not self.ended:
            self._transport.write(command)
        return self.expect(patience)

    def post_compiled(self, start: bytes, id: str) -> Any:
        """As `post`, of a command that ends with a claim's id, when no other reply is to come.

        Returns:
            The reply, if it came at once and is a number or a list; or what will have the reply.
        """
        try:
            data = native.post(self.plain, start, id)
        except OSError as error:
            self.close()
            raise broken(self.recipe.where, error) from error
        if data is not None and type(data) is not bytes:
            return data
        future = self.expect()
        if data is not None:
            self.data_received(data)
        return future

    def expect(self, patience: float | None = None) -> "asyncio.Future[Any]":
        """Return what will have the reply to a command that was sent."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.ended:
            future.set_exception(broken(self.recipe.where, None))
            return future
        self._waiting.append(future)
        # One timer for all: most replies come long before it, and a timer for each would cost more than the reply.
        moment = self._loop.time() + (patience or self.recipe.patience)
        self._deadlines.append(moment)
        if self._timer is None or (patience is not None and moment < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(moment, self._look_for_late)
        return future

    @property
    def quiet(self) -> bool:
        """True while no reply is to come."""
        return not self._waiting

    async def ask(self, command: bytes, asking: bool = False, patience: float | None = None) -> Any:
        """Send a command and return the reply, which may be a ReplyError.

        Raises:
            Broken: the connection ended before the reply came.
            NoAnswer: the reply did not come in time.
        """
        if asking:
            self._waiting.append(self._loop.create_future())  # nobody waits for its reply
            self._deadlines.append(math.inf)
            command = ASKING + command
        return await self.post(command, patience)

    def _look_for_late(self) -> None:
        """Give up the replies that are late; look again when the next one would be."""
        self._timer = None
        now = self._loop.time()
        for future, moment in zip(self._waiting, self._deadlines, strict=True):
            if moment <= now:
                self.ended = True
                if not future.done():
                    future.set_exception(no_answer(self.recipe.where, self.recipe.patience))
        if self.ended:
            # Whoever was late may say something after it on this connection; then nobody needs it any more.
            self._loop.call_later(self.recipe.patience, self.close)
        upcoming = min((moment for moment in self._deadlines if moment > now), default=math.inf)
        if upcoming < math.inf:
            self._timer = self._loop.call_at(upcoming, self._look_for_late)

    def data_received(self, data: bytes) -> None:
        """Take what the server sent, and give each reply to whom it belongs."""
        if data[:1] == b":" and data[-2:] == b"\r\n" and len(self._waiting) == 1 and data.count(b"\n") == 1:
            self._answer(int(data[1:-2]))
            return
        self.parser.feed(data)
        while (reply := self.parser.next()) is not MISSING:
            if type(reply) is not Push:
                self._answer(reply)

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
                future.set_exception(broken(self.recipe.where, error))

    def call_after(self, command: bytes) -> None:
        """Send a command without waiting for the reply, and close."""
        self._transport.write(command)
        self.close()

    def close(self) -> None:
        """Close the connection when what was written is sent."""
        self.ended = True
        self._transport.close()
        self.forget()

    def forget(self) -> None:
        """Close nothing, because it is closed already, or, in a forked child, because it is the parent's."""
        self.ended = True
        self._connection._writer = self._connection._reader = None


Link = TypeVar("Link", bound=TaskLink)


class PerLoop(Generic[Link]):
    """Connections that are opened once for each event loop, by a task of its own.

    A caller that is cancelled meanwhile takes nothing from the others; and client libraries do not bear it well to be
    cancelled while they connect.

    Args:
        open: makes one for the running loop.
    """

    def __init__(self, open: Callable[[], Coroutine[Any, Any, Link]]) -> None:
        self._open = open
        self.ready: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = weakref.WeakKeyDictionary()
        self._tasks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Link]] = (
            weakref.WeakKeyDictionary()
        )
        self._recent: Link | None = None
        self._open_links: set[Link] = set()  # also those that were replaced and are not closed yet
        self.closed = False

    def here(self) -> Link | None:
        """Return the one of the running loop, if it is open."""
        loop = asyncio.get_running_loop()
        link = self._recent
        if link is None or link.ended or link._loop is not loop:
            link = self._recent = self.ready.get(loop)
        return link if link is not None and not link.ended else None

    async def get(self) -> Link:
        """Return the one of the running loop, which is opened if there is none.

        Raises:
            StoreError: all were closed; or it can't be opened.
        """
        if self.closed:
            raise StoreError("this connection was closed: connect again")
        loop = asyncio.get_running_loop()
        task = self._tasks.get(loop)
        if task is None:
            task = self._tasks[loop] = loop.create_task(self._open(), name="interlock-connects")
            task.add_done_callback(self._opened)
        return await asyncio.shield(task)

    def _opened(self, task: "asyncio.Task[Link]") -> None:
        loop = task.get_loop()
        self._tasks.pop(loop, None)
        if task.cancelled() or task.exception() is not None:
            return
        link = task.result()
        self._open_links.add(link)
        link.gone.add_done_callback(lambda _: self._open_links.discard(link))
        if self.closed:
            link.close()
        else:
            self.ready[loop] = link

    def opening(self) -> "list[asyncio.Task[Link]]":
        """Return what is being opened for the running loop."""
        task = self._tasks.get(asyncio.get_running_loop())
        return [] if task is None else [task]

    def links(self) -> list[Link]:
        """Return what is open in the running loop."""
        loop = asyncio.get_running_loop()
        return [link for link in self._open_links if link.gone.get_loop() is loop]

    def stranded(self) -> list[Link]:
        """Return those whose loops have ended without them."""
        return [link for link in self._open_links if link.gone.get_loop().is_closed()]

    def close(self) -> None:
        """Close all whose loops still run, and give up what is being opened."""
        self.closed = True
        for loop, task in list(self._tasks.items()):
            if not loop.is_closed():
                task.cancel()
        for link in list(self._open_links):
            if not link.gone.get_loop().is_closed():
                link.close()
        self.ready.clear()

    def forget(self) -> None:
        """In a forked child: leave the connections to the parent."""
        for link in self._open_links:
            link.forget()


class AsyncWire:
    """The connections to one server, for asyncio tasks: one for each loop.

    Args:
        recipe: how to make them.
    """

    def __init__(self, recipe: Dialer) -> None:
        self.recipe = recipe
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._links: PerLoop[TaskLink] = PerLoop(self._open)
        self._late: dict[str, TaskLink] = {}

    async def _open(self) -> TaskLink:
        link = TaskLink(self.recipe)
        await link.open()
        return link

    async def _link(self) -> TaskLink:
        return self._links.here() or await self._links.get()

    async def aask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """Send a command and return the reply.

        Raises:
            Unreachable: nothing was sent.
            UnknownOutcome: it was sent, and no reply came.
            Refused: the server's answer is no.
        """
        if self._late and message.owner is not None:
            late = self._late.pop(message.owner, None)
            if late is not None and not message.last:
                late.close()
            elif late is not None:
                # If the server ever gets the first command, it gets this one right after it.
                late.call_after(message.command)
                raise NoAnswer(
                    f"{self.recipe.where} does not answer; the claim will go when its lease ends, if not before"
                )
        link = await self._link()
        try:
            reply = await link.ask(message.command, asking, message.patience)
        except NoAnswer:
            if message.owner is not None:
                self._late[message.owner] = link
            else:
                link.close()
            raise
        if type(reply) is not int and isinstance(reply, ReplyError):
            return await self._refused(message, reply, once_more, asking)
        return reply

    def exchange(self, start: bytes, line: str, id: str, busy: bool = False) -> Any:
        """As `aask`, on the shortest way: most replies come at once, on a connection that is open already.

        Args:
            start, line, id: as for `Wire.exchange`.
            busy: True if somebody else is about to run, who needs the processor more than looking for the reply does.

        Returns:
            The reply, if it came at once and is a number or a list; else what to await for it.
        """
        link = self._links.here()
        if link is None or self._late:
            return self.aask(Message(ended_by(start, id), line, id))
        if link.plain < 0 or busy or not link.quiet:
            return self._rest(link, link.post(ended_by(start, id)), start, line, id)
        reply = link.post_compiled(start, id)
        if type(reply) is int or type(reply) is list:
            return reply
        return self._rest(link, reply, start, line, id)

    async def _rest(self, link: TaskLink, coming: "asyncio.Future[Any]", start: bytes, line: str, id: str) -> Any:
        """Wait for the reply of an exchange."""
        try:
            reply = await coming
        except NoAnswer:
            self._late[id] = link
            raise
        if type(reply) is int or not isinstance(reply, ReplyError):
            return reply
        return await self._refused(Message(ended_by(start, id), line, id), reply, True, False)

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
        return refuse(error, self.recipe.where, message.line)

    def nodes(self) -> list[str]:
        """Return a key of each server that has some."""
        return [""]

    def batches(self, claims: Sequence[Claim], most: int) -> list[Sequence[Claim]]:
        """Return which claims may be renewed by one call."""
        return [claims[start : start + most] for start in range(0, len(claims), most)]

    def drop(self) -> None:
        """Close the calling loop's connection."""
        link = self._links.ready.pop(asyncio.get_running_loop(), None)
        if link is not None:
            link.close()

    def opening(self) -> "list[asyncio.Task[Any]]":
        """Return the connections that are being made for the running loop."""
        return [*self._links.opening()]

    def links(self) -> list[TaskLink]:
        """Return the connections of the running loop."""
        return self._links.links()

    def close(self) -> None:
        """Close all connections whose loops still run."""
        self._links.close()
        self._late.clear()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        self._links.forget()
        self._start_afresh()
