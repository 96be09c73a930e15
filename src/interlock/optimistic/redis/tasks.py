"""Optimistic transactions on Redis for asyncio tasks."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from inspect import isawaitable
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from interlock._redis.libraries import is_cluster
from interlock.core.effects import Op
from interlock.core.errors import InvalidArgument, StoreError
from interlock.optimistic.backend import Queued
from interlock.optimistic.redis.libraries import Command, Library, checked_library, first_argument, follow
from interlock.optimistic.redis.steps import NO_KEY, ConnectionFailed, Conversation, Packet, text
from interlock.optimistic.redis.transaction import BaseTransaction
from interlock.optimistic.tries import Tries
from interlock.runtime.aio import arun

T = TypeVar("T")

_closing: set["asyncio.Task[None]"] = set()
"""Connections that are being given back; the loop itself does not keep its tasks alive."""


class TransactionConnection:
    """One connection of the client's, for the time of one try; as `threads.TransactionConnection`.

    Args:
        library: the client's library.
        home: the pool or the cluster's node that lent the connection.
        lent: the connection, connected.
        callbacks: shape replies as the library does.
    """

    def __init__(self, library: Library, home: Any, lent: Any, callbacks: Any) -> None:
        self._library = library
        self._home = home
        self._connection = lent
        self._writer = lent._writer
        self.callbacks = callbacks
        self.broken = False

    async def exchange(self, packet: Packet, io_timeout: float | None) -> list[Any]:
        """As `threads.TransactionConnection.exchange`; `io_timeout` is for all replies together."""
        if self.broken:
            raise ConnectionFailed("the connection failed earlier in this try; nothing was changed")
        try:
            async with asyncio.timeout(io_timeout):
                self._writer.writelines(self._connection.pack_commands([command.words for command in packet]))
                await self._writer.drain()
                return [await self._reply(command) for command in packet]
        except Exception as error:
            self.broken = True
            raise ConnectionFailed(f"the connection failed: {error!r}; nothing was changed") from error
        except BaseException:
            self.broken = True
            raise

    async def _reply(self, command: Command) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=command.undecoded)
        except self._library.refusal as error:
            return error

    async def close(self) -> None:
        """Give it back, whatever happens to the task meanwhile; a broken one will be connected anew."""
        task = asyncio.ensure_future(self._close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)
        await asyncio.shield(task)

    async def _close(self) -> None:
        try:
            if self.broken:
                await self._connection.disconnect(nowait=True)
        finally:
            await give_back(self._home, self._connection)


async def give_back(home: Any, connection: Any) -> None:
    """Give a connection back to its pool or its node of a cluster."""
    if hasattr(home, "get_connection"):
        await home.release(connection)
    elif hasattr(home, "release"):
        home.release(connection)
    else:  # nodes of older libraries
        home._free.append(connection)


async def lent_by(node: Any) -> Any:
    """Return a connection of a cluster's node; nodes, unlike pools, lend them as they are."""
    connection = node.acquire_connection()
    try:
        reader = connection._reader
        if reader is not None and reader.at_eof():
            await connection.disconnect(nowait=True)
        await connection.connect()
    except BaseException:
        await give_back(node, connection)
        raise
    return connection


class AsyncRedisBackend:
    """A client of redis.asyncio or valkey.asyncio as a backend.

    Args:
        client: a client, also of Sentinel or a cluster.

    Raises:
        InvalidArgument: it is none, or one for threads.
    """

    def __init__(self, client: Any) -> None:
        self.library = checked_library(client, tasks=True)
        self.client = client
        self.cluster = is_cluster(client)

    def begin(self, tries: Tries) -> "AsyncRedisAttempt":
        """As `Backend.begin`."""
        return AsyncRedisAttempt(self, tries)

    async def connection(self, slot: int | None) -> TransactionConnection:
        """Return a connection.

        Raises:
            InvalidArgument: it is a cluster, and there is no slot.
            StoreError: the server can't be reached.
        """
        if self.cluster and slot is None:
            raise InvalidArgument(NO_KEY)
        try:
            if self.cluster:
                await self.client.initialize()
                manager = self.client.nodes_manager
                node = manager.get_node_from_slot(slot)
                # That one may be a double of the node that the client knows, and closes at its end.
                node = manager.nodes_cache.get(node.name, node)
                return TransactionConnection(self.library, node, await lent_by(node), node.response_callbacks)
            pool = self.client.connection_pool
            lent = await pool.get_connection(*first_argument(pool.get_connection.__func__))
            return TransactionConnection(self.library, pool, lent, self.client.response_callbacks)
        except self.library.failures as error:
            if self.cluster:
                await self._look_again()
            raise StoreError(f"the server can't be reached: {error!r}; nothing was changed") from error

    async def _look_again(self) -> None:
        """Let the client ask the cluster anew, as it does itself: a node that is gone may have a successor."""
        with suppress(*self.library.failures):
            again = getattr(self.client, "_reset_for_reinitialize", self.client.aclose)  # valkey-py, redis-py
            await again()


class AsyncRedisAttempt:
    """One try on Redis; see `AsyncAttempt`."""

    def __init__(self, backend: AsyncRedisBackend, tries: Tries) -> None:
        self._backend = backend
        self._tries = tries
        self._conversation = Conversation(self, backend.library, backend.client, backend.cluster)
        self._connection: TransactionConnection | None = None
        self._one_at_a_time = asyncio.Lock()  # a function may gather() its reads
        self.transaction = AsyncTransaction(self, backend, tries.number, self._conversation.writes)

    @property
    def keys(self) -> Sequence[str]:
        """What is watched, for messages."""
        return [text(key) for key in self._conversation.watched]

    async def watch(self, keys: Sequence[Any]) -> None:
        """Watch keys."""
        await self._perform(self._conversation.watch(self.transaction.encoded(keys)))

    async def read(self, request: Command, watch: bool = True) -> Any:
        """As `RedisAttempt.read`."""
        reply = await self._perform(self._conversation.read(request, watch))
        return request.shaped(reply, self._callbacks)

    async def commit(self) -> bool:
        """Do all that was queued, unless something that is watched has changed."""
        self.transaction.end()
        self._conversation.check(self._connection is not None and self._connection.broken)
        replies = await self._perform(self._conversation.commit())
        return replies is not None and self._conversation.settle(replies, self._callbacks)

    @property
    def _callbacks(self) -> Any:
        return {} if self._connection is None else self._connection.callbacks

    async def aask(self, message: Packet) -> list[Any]:
        """Send a packet on the connection of this try, and return the replies.

        Raises:
            ConnectionFailed: the connection failed.
            StoreError, InvalidArgument: there is no connection.
        """
        while True:
            if self._connection is None:
                self._connection = await self._backend.connection(self._conversation.slot)
            try:
                replies = await self._connection.exchange(message, self._tries.io_timeout(monotonic()))
            except ConnectionFailed as error:
                if not self._conversation.may_repeat(message, error):
                    raise
                await self._connection.close()
                self._connection = None
            else:
                self._conversation.heard = True
                return replies

    async def _perform(self, op: Op[T]) -> T:
        async with self._one_at_a_time:
            return await arun(op)

    async def __aenter__(self) -> "AsyncRedisAttempt":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transaction.end()
        connection = self._connection
        if connection is None:
            return
        try:
            # After a cancellation nothing more is sent: to disconnect also forgets what is watched.
            connection.broken = connection.broken or not (kind is None or issubclass(kind, Exception))
            if not connection.broken:
                with suppress(ConnectionFailed):
                    await self._perform(self._conversation.forget())
        finally:
            await connection.close()
        if self._conversation.moved is not None:
            following = follow(self._backend.client.nodes_manager, self._conversation.moved)
            if isawaitable(following):
                await following


class AsyncTransaction(BaseTransaction):
    """What the function of `atransact` is given: as `Transaction`, but reads, `watch` and `ask` are awaited."""

    def __init__(
        self, attempt: AsyncRedisAttempt, backend: AsyncRedisBackend, number: int, writes: list[Queued]
    ) -> None:
        super().__init__(backend.library, backend.client.get_encoder(), number, writes)
        self._attempt = attempt

    async def watch(self, *keys: Any) -> None:
        """Watch more keys: if one changes from now on, nothing is committed."""
        await self._attempt.watch(keys)

    async def ask(self, *words: Any) -> Any:
        """Do any command now and return its reply, without watching what it reads; a write is done for good."""
        return await self._now(self._command(words, {}), watch=False)

    def _now(self, command: Command, watch: bool) -> Coroutine[Any, Any, Any]:
        return self._attempt.read(command, watch)
