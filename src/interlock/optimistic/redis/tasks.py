"""Optimistic transactions on Redis for asyncio tasks."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from inspect import isawaitable
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from interlock.core.effects import Op
from interlock.optimistic.redis.attempt import (
    BaseRedisAttempt,
    BaseRedisBackend,
    BaseTransactionConnection,
    failed,
    unreachable,
)
from interlock.optimistic.redis.libraries import Command, Library, first_argument, follow
from interlock.optimistic.redis.steps import ConnectionFailed, Packet
from interlock.optimistic.redis.transaction import BaseTransaction
from interlock.optimistic.tries import Tries
from interlock.runtime.aio import arun

T = TypeVar("T")

_closing: set["asyncio.Task[None]"] = set()
"""Connections that are being given back; the loop itself does not keep its tasks alive."""


class TransactionConnection(BaseTransactionConnection):
    """One connection of the client's, for the time of one try; as `threads.TransactionConnection`.

    Args:
        library: the client's library.
        home: the pool or the cluster's node that lent the connection.
        lent: the connection, connected.
        callbacks: shape replies as the library does.
    """

    def __init__(self, library: Library, home: Any, lent: Any, callbacks: Any) -> None:
        super().__init__(library, callbacks)
        self._home = home
        self._connection = lent
        self._writer = lent._writer

    async def exchange(self, packet: Packet, io_timeout: float | None) -> list[Any]:
        """Send commands, and return their replies; `io_timeout` is for all of them together."""
        self._check()
        try:
            async with asyncio.timeout(io_timeout):
                self._writer.writelines(self._connection.pack_commands([command.words for command in packet]))
                await self._writer.drain()
                return [await self._reply(command) for command in packet]
        except Exception as error:
            self.broken = True
            raise failed(error) from error
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


class AsyncRedisBackend(BaseRedisBackend):
    """A client of redis.asyncio or valkey.asyncio as a backend.

    Args:
        client: a client, also of Sentinel or a cluster.

    Raises:
        InvalidArgument: it is none, or one for threads.
    """

    _tasks = True

    def begin(self, tries: Tries) -> "AsyncRedisAttempt":
        return AsyncRedisAttempt(self, tries)

    async def connection(self, slot: int | None) -> TransactionConnection:
        """Return a connection.

        Raises:
            InvalidArgument: it is a cluster, and there is no slot.
            StoreError: the server can't be reached.
        """
        self._check_slot(slot)
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
            raise unreachable(error) from error

    async def _look_again(self) -> None:
        """Let the client ask the cluster anew, as it does itself: a node that is gone may have a successor."""
        with suppress(*self.library.failures):
            again = getattr(self.client, "_reset_for_reinitialize", self.client.aclose)  # valkey-py, redis-py
            await again()


class AsyncTransaction(BaseTransaction):
    """What the function of `atransact` is given: as `Transaction`, but reads, `watch` and `ask` are awaited."""

    async def watch(self, *keys: Any) -> None:
        """Watch more keys: if one changes from now on, nothing is committed."""
        await self._attempt.watch(keys)

    async def ask(self, *words: Any) -> Any:
        """Do any command now and return its reply, without watching what it reads; a write is done for good."""
        return await self._now(self._command(words, {}), watch=False)


class AsyncRedisAttempt(BaseRedisAttempt):
    """One try on Redis; see `AsyncAttempt`."""

    _transaction_type = AsyncTransaction
    _connection: TransactionConnection | None

    def __init__(self, backend: AsyncRedisBackend, tries: Tries) -> None:
        super().__init__(backend, tries)
        self._one_at_a_time = asyncio.Lock()  # a function may gather() its reads

    async def watch(self, keys: Sequence[Any]) -> None:
        """Watch keys."""
        await self._perform(self._conversation.watch(self.transaction.encoded(keys)))

    async def read(self, request: Command, watch: bool = True) -> Any:
        reply = await self._perform(self._conversation.read(request, watch))
        return request.shaped(reply, self._callbacks)

    async def commit(self) -> bool:
        """Do all that was queued, unless something that is watched has changed."""
        self._before_commit()
        replies = await self._perform(self._conversation.commit())
        return self._committed(replies)

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
