"""The connections of asyncio tasks to one server, one for each event loop."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from interlock._redis import limit
from interlock._redis.aconnection import AsyncConnection
from interlock._redis.clients import ConnectionFactory, beside
from interlock._redis.errors import NoRoom, code_of, full, is_full, refuse
from interlock._redis.message import Message, NoAnswer
from interlock._redis.perloop import PerLoop
from interlock._redis.pipeline import Batch
from interlock._redis.primary import IDENTITY, Identity, nobody_cares
from interlock._redis.resp import ReplyError, pack
from interlock._redis.scripts import with_source, without_memory
from interlock.core.claims import Claim
from interlock.core.errors import StoreError

ASKING = pack("ASKING")


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
        self.moved: Callable[[], object] = nobody_cares
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
        """As `pipeline.Pipeline.ask`."""
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
        return any([connection.leave_late(owner, command) for connection in late])  # noqa: C419 - all of them

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
