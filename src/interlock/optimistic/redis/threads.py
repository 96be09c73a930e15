"""Optimistic transactions on Redis for threads."""

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any

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
from interlock.runtime.sync import run


class TransactionConnection(BaseTransactionConnection):
    """One connection of the client's pool, for the time of one try.

    What is said goes to the very socket that was there at the beginning: the library's own way of sending connects
    anew when the connection was lost, and on a new connection nothing is watched.

    Args:
        library: the client's library.
        pool: lends the connection.
        callbacks: shape replies as the library does.
    """

    def __init__(self, library: Library, pool: Any, callbacks: Any) -> None:
        super().__init__(library, callbacks)
        self._pool = pool
        self._lent = pool.get_connection(*first_argument(pool.get_connection.__func__))
        self._connection = getattr(self._lent, "_conn", self._lent)  # without the cache of redis-py
        self._socket = self._connection._sock
        self._own_timeout = self._socket.gettimeout()

    def exchange(self, packet: Packet, io_timeout: float | None) -> list[Any]:
        """Send commands and wait for their replies; a refusal is a reply.

        Args:
            packet: the commands.
            io_timeout: seconds to wait for each reply, unless the client waits shorter.

        Raises:
            ConnectionFailed: the connection failed.
        """
        self._check()
        try:
            self._wait(io_timeout)
            for part in self._connection.pack_commands([command.words for command in packet]):
                self._socket.sendall(part)
            return [self._reply(command) for command in packet]
        except Exception as error:
            self.broken = True
            raise failed(error) from error
        except BaseException:
            self.broken = True
            raise

    def _wait(self, io_timeout: float | None) -> None:
        if io_timeout is not None:
            self._socket.settimeout(io_timeout if self._own_timeout is None else min(io_timeout, self._own_timeout))

    def _reply(self, command: Command) -> Any:
        try:
            return self._connection.read_response(disable_decoding=command.undecoded)
        except self._library.refusal as error:
            return error

    def close(self) -> None:
        """Give it back; a broken one will be connected anew."""
        try:
            if self.broken:
                self._lent.disconnect()
            else:
                self._socket.settimeout(self._own_timeout)
        finally:
            self._pool.release(self._lent)


class RedisBackend(BaseRedisBackend):
    """A client of redis-py or valkey-py as a backend.

    Args:
        client: a client, also of Sentinel or a cluster.

    Raises:
        InvalidArgument: it is none, or one of asyncio.
    """

    def begin(self, tries: Tries) -> "RedisAttempt":
        return RedisAttempt(self, tries)

    def connection(self, slot: int | None) -> TransactionConnection:
        """Return a connection.

        Raises:
            InvalidArgument: it is a cluster, and there is no slot.
            StoreError: the server can't be reached.
        """
        self._check_slot(slot)
        try:
            client = self.client
            if self.cluster:
                client = self._client_of(client.nodes_manager.get_node_from_slot(slot))
            return TransactionConnection(self.library, client.connection_pool, client.response_callbacks)
        except self.library.failures as error:
            if self.cluster:
                self._look_again()
            raise unreachable(error) from error

    def _client_of(self, node: Any) -> Any:
        return getattr(self.client, f"get_{self.library.name}_connection")(node)

    def _look_again(self) -> None:
        """Ask the cluster where its slots are: a node that can't be reached may have a successor."""
        with suppress(*self.library.failures):
            self.client.nodes_manager.initialize()


class Transaction(BaseTransaction):
    """What the function of `transact` is given."""

    def watch(self, *keys: Any) -> None:
        """Watch more keys: if one changes from now on, nothing is committed."""
        self._attempt.watch(keys)

    def ask(self, *words: Any) -> Any:
        """Do any command now and return its reply, without watching what it reads; a write is done for good."""
        return self._now(self._command(words, {}), watch=False)


class RedisAttempt(BaseRedisAttempt):
    """One try on Redis; see `Attempt`."""

    _transaction_type = Transaction
    _connection: TransactionConnection | None

    def watch(self, keys: Sequence[Any]) -> None:
        """Watch keys."""
        run(self._conversation.watch(self.transaction.encoded(keys)))

    def read(self, request: Command, watch: bool = True) -> Any:
        """Do a command now.

        Args:
            request: the command.
            watch: first watch the keys that it reads.
        """
        reply = run(self._conversation.read(request, watch))
        return request.shaped(reply, self._callbacks)

    def commit(self) -> bool:
        """Do all that was queued, unless something that is watched has changed."""
        self._before_commit()
        replies = run(self._conversation.commit())
        return self._committed(replies)

    def ask(self, message: Packet) -> list[Any]:
        """Send a packet on the connection of this try, and return the replies.

        Raises:
            ConnectionFailed: the connection failed.
            StoreError, InvalidArgument: there is no connection.
        """
        while True:
            if self._connection is None:
                self._connection = self._backend.connection(self._conversation.slot)
            try:
                replies = self._connection.exchange(message, self._tries.io_timeout(monotonic()))
            except ConnectionFailed as error:
                if not self._conversation.may_repeat(message, error):
                    raise
                self._connection.close()
                self._connection = None
            else:
                self._conversation.heard = True
                return replies

    def __enter__(self) -> "RedisAttempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transaction.end()
        connection = self._connection
        if connection is None:
            return
        try:
            # After an interrupt nothing more is sent: to disconnect also forgets what is watched.
            connection.broken = connection.broken or not (kind is None or issubclass(kind, Exception))
            if not connection.broken:
                with suppress(ConnectionFailed):
                    run(self._conversation.forget())
        finally:
            connection.close()
        if self._conversation.moved is not None:
            follow(self._backend.client.nodes_manager, self._conversation.moved)
