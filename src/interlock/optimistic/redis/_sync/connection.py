# Generated from _async/connection.py by tools/unasync.py; change that one.
"""One connection of the client's, for the time of one try."""

from collections.abc import Sequence
from typing import Any

from interlock.optimistic.redis.libraries import (
    ConnectionFailed,
    Library,
    RedisCommand,
    first_argument,
    give_back_to_node,
)
from interlock.runtime import _threads as rt


class TransactionConnection:
    """A connection that watches: it is refused to the library to connect it anew.

    The library does that without a word where a connection was lost, and on a new one nothing is watched.

    Args:
        library: the client's library.
        home: the pool, or the node of a cluster, that lent the connection.
        lent: the connection.

    Attributes:
        broken: True once nothing more may be said on it.
    """

    def __init__(self, library: Library, home: Any, lent: Any) -> None:
        self._library = library
        self._home = home
        self._lent = lent
        self.broken = False
        lent.register_connect_callback(self.connected)

    def connected(self, connection: Any) -> None:
        """For the library, which connects anew: say no.

        Raises:
            ConnectionFailed: always.
        """
        raise ConnectionFailed("it was closed, and on a new one nothing is watched")

    def exchange(self, packet: Sequence[RedisCommand], io_timeout: float | None) -> list[Any]:
        """Send commands and wait for their replies; a refusal is a reply.

        Args:
            packet: the commands.
            io_timeout: seconds to wait, for all replies (tasks) or for each (threads), unless the client waits
                shorter; None for as long as the client waits.

        Raises:
            ConnectionFailed: the connection failed.
        """
        if self.broken:
            raise ConnectionFailed("the connection failed earlier in this try; nothing was changed")
        self.broken = True  # until all replies are there
        try:
            replies = rt.within(io_timeout, self._exchange, packet, io_timeout)
        except Exception as error:
            raise ConnectionFailed(f"the connection failed: {error!r}; nothing was changed") from error
        self.broken = False
        return replies

    def _exchange(self, packet: Sequence[RedisCommand], io_timeout: float | None) -> list[Any]:
        self._lent.send_packed_command(self._lent.pack_commands([each.words for each in packet]), False)
        return [self._reply(each, io_timeout) for each in packet]

    def _reply(self, command: RedisCommand, io_timeout: float | None) -> Any:
        if io_timeout is not None and not rt.TASKS:
            own = self._lent.socket_timeout
            if not self._lent.can_read(io_timeout if own is None else min(own, io_timeout)):
                raise TimeoutError(f"no reply within {io_timeout:g} s")
        try:
            return self._lent.read_response(disable_decoding=command.undecoded)
        except self._library.refusal as error:
            return error

    def close(self) -> None:
        """Give it back, whatever happens to the task meanwhile; a broken one will be connected anew."""
        rt.finish(self._close)

    def _close(self) -> None:
        self._lent.deregister_connect_callback(self.connected)
        try:
            if self.broken:
                self._library.disconnect(self._lent)
        finally:
            give_back(self._home, self._lent)


def give_back(home: Any, lent: Any) -> None:
    """Give a connection back to its pool, or its node of a cluster."""
    if hasattr(home, "get_connection"):
        home.release(lent)
    else:
        give_back_to_node(home, lent)


def borrow(library: Library, home: Any, fresh: bool) -> TransactionConnection:
    """Return a connection that has been connected.

    Args:
        library: the client's library.
        home: the pool, or the node of a cluster, that lends it.
        fresh: True to connect it anew.

    Raises:
        The client's exceptions.
    """
    if hasattr(home, "get_connection"):
        lent = home.get_connection(*first_argument(type(home).get_connection))
    else:
        lent = home.acquire_connection()
    try:
        if fresh:
            library.disconnect(lent)
        lent.connect()
        return TransactionConnection(library, home, lent)
    except BaseException:
        rt.finish(give_back, home, lent)
        raise
