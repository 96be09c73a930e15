"""The connections of threads to one server."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NoReturn

from interlock._redis.clients import OneServer, beside
from interlock._redis.connection import Connection, Looking
from interlock._redis.errors import NoRoom, code_of, full, is_full, no_room, refuse
from interlock._redis.limit import ConnectionLimit, Permit
from interlock._redis.message import Message, broken, garbled, no_answer, outdated, unreachable
from interlock._redis.pipeline import Batch
from interlock._redis.primary import IDENTITY, Identity, nobody_cares
from interlock._redis.resp import ReplyError, pack
from interlock._redis.scripts import with_source, without_memory
from interlock.core.claims import Claim
from interlock.core.errors import StoreError

ASKING = pack("ASKING")
MOST = 65536  # bytes taken at a time
SHORT = 4096  # bytes taken at first: nearly all replies are one number
LOOK = 250e-6  # seconds
MOST_MISSES = 8  # looked in vain so often in a row: stop looking
PAUSE = 200  # commands until the next tries
SHORTEST = 0.1  # seconds to connect in, also after a long wait for the turn
MOST_LATE = 4  # connections kept for one claim


class Pool:
    """The connections to one server, for threads.

    Args:
        factory: how to make them.

    Attributes:
        nodes: what names the servers that have keys; None as there is one.
        moved: called when there is another primary than before.
    """

    nodes: Any = None
    follows = False  # where a name has moved to

    def __init__(self, factory: OneServer) -> None:
        self.factory = factory
        self._io_timeout = factory.io_timeout
        self._looking = Looking()
        self._identity = Identity()
        self.moved: Callable[[], object] = nobody_cares
        self._limit = ConnectionLimit(factory.most)
        self._idle: list[Connection] = self._limit.idle
        self._late: dict[str, list[Connection]] = {}
        self._generation = object()  # another one since a connection failed: those that were open are not trusted
        self._primary = object()  # another one since there was another primary: the old one is not believed
        self._closed = False

    def exchange(self, command: bytes, line: str, owner: str | None) -> Any:
        """As `ask`, on the shortest way: most replies are one number, on a connection that is open already.

        Args:
            command, line, owner: as in `Message`.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            return self.ask(Message(command, line, owner))
        if connection.generation is not self._generation or connection._poll is None:
            self._idle.append(connection)
            return self.ask(Message(command, line, owner))
        try:
            connection.used = end = monotonic() + self._io_timeout
            connection.send(command, end)
            data = connection.first(end)
            if data[:1] == b":" and data[-1:] == b"\n" and data.count(b"\n") == 1:
                reply = int(data[1:-2])
            else:
                reply = connection.rest(data, end)
        except BaseException as error:
            self._ended(connection, owner, None, error)
        if type(reply) is int and connection.primary is self._primary:
            self._put_back(connection)
            return reply
        return self._answer(connection, Message(command, line, owner), reply)

    def ask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """Send a command and return the reply.

        Raises:
            Unreachable: nothing was sent.
            UnknownOutcome: it was sent, and no reply came.
            Refused: the server's answer is no.
        """
        command, _, owner, io_timeout = message
        connection = self._take(io_timeout, owner is None)
        try:
            if asking:
                refusal = connection.ask(ASKING + command, io_timeout or self._io_timeout)
                # In any case: it would be the next one's else.
                reply = connection.next(monotonic() + (io_timeout or self._io_timeout))
                if isinstance(refusal, ReplyError):
                    reply = refusal
            else:
                reply = connection.ask(command, io_timeout or self._io_timeout)
        except BaseException as error:
            self._ended(connection, owner, io_timeout, error)
        return self._answer(connection, message, reply, once_more, asking)

    def ask_all(self, batch: Batch) -> list[Any]:
        """As `pipeline.Pipeline.ask`, on one connection."""
        io_timeout = batch.io_timeout(self._io_timeout)
        replies: list[Any] = []
        try:
            connection = self._take(io_timeout)
        except StoreError as error:
            return [error] * len(batch.messages)
        try:
            connection.used = end = monotonic() + io_timeout
            connection.send(batch.data(), end)
            for _ in range(batch.replies()):
                replies.append(connection.next(end))  # noqa: PERF401 - those that came are kept if one does not
        except BaseException as error:
            try:
                self._ended(connection, None, io_timeout, error)
            except StoreError as failure:
                if batch.asking:
                    replies = replies[1::2]
                return replies + [failure] * (len(batch.messages) - len(replies))
        if connection.primary is not self._primary:
            connection.close()
            return [outdated(self.factory.where)] * len(batch.messages)
        self._put_back(connection)
        return replies[1::2] if batch.asking else replies

    @property
    def has_late(self) -> bool:
        """True while a request had no answer that may still put a claim into a line."""
        return bool(self._late)

    def leave_late(self, owner: str, command: bytes) -> bool:
        """Send the command that takes a claim out of the line behind each one that may still put it there.

        A request that is late would else be performed after the claim has left, and strand it.

        Returns:
            False if there is none.
        """
        late = self._late.pop(owner, ())
        for connection in late:
            connection.send_and_close(command)
        return bool(late)

    def _ended(
        self, connection: Connection, owner: str | None, io_timeout: float | None, error: BaseException
    ) -> NoReturn:
        """Decide what becomes of a connection on which no reply came, and raise why."""
        if isinstance(error, ValueError):
            connection.close()
            self.drop()
            raise garbled(self.factory.where, error) from None
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            connection.close()
            self.drop()  # the others have probably ended too
            raise broken(self.factory.where, error) from error
        if owner is None:
            connection.close()
        else:
            late = self._late.setdefault(owner, [])
            if len(late) >= MOST_LATE:
                late.pop().close()  # the first ones count: they may put the claim into the line
            late.append(connection)
            connection.permit = None  # others need connections too, until the claim has left
        if not isinstance(error, TimeoutError):
            raise error
        self.drop()  # somebody on the way may have forgotten the others too
        raise no_answer(self.factory.where, io_timeout or self._io_timeout) from None

    def _answer(
        self, connection: Connection, message: Message, reply: Any, once_more: bool = True, asking: bool = False
    ) -> Any:
        refused = type(reply) is not int and isinstance(reply, ReplyError)
        if refused and is_full(reply):
            connection.close()
            raise full(self.factory.where, reply) from reply
        if connection.primary is not self._primary:
            connection.close()
            raise outdated(self.factory.where)
        self._put_back(connection)
        return self._refused(message, reply, once_more, asking) if refused else reply

    def _put_back(self, connection: Connection) -> None:
        if connection.generation is self._generation:
            self._idle.append(connection)
            if self._limit.waiting:
                self._limit.serve()
            if connection.used > self._limit.tidy_at:
                self._limit.tidy()
        else:
            connection.close()

    def _take(self, io_timeout: float | None, urgent: bool = True) -> Connection:
        """Return an idle connection that should still be open, or a new one.

        Args:
            io_timeout: seconds to wait for it; None for as long as for a reply.
            urgent: as for `ConnectionLimit.take`.

        Raises:
            NoRoom: there was none in time.
        """
        io_timeout = io_timeout or self._io_timeout
        end = monotonic() + io_timeout
        refusal: NoRoom | None = None
        while True:
            found = self._limit.take(urgent, end)
            if self._closed:
                raise StoreError("this connection was closed: connect again")
            if found is None:
                raise refusal or no_room(self.factory.where, self.factory.most, io_timeout)
            if type(found) is Permit:
                try:
                    return self._made(found, end)
                except NoRoom as error:
                    refusal = error
                    self._limit.server_is_full(found)
                except BaseException:
                    self._limit.free(found)
                    raise
            else:
                connection: Connection = found
                if connection.generation is self._generation:
                    return connection
                connection.close()

    def _made(self, permit: Permit, end: float) -> Connection:
        generation, primary = self._generation, self._primary  # of before: a new connection may be led to the old one
        connection = Connection(self.factory, max(SHORTEST, end - monotonic()), generation, self._looking, permit)
        connection.primary = primary
        self._meet(connection, max(SHORTEST, end - monotonic()))
        if self._closed:  # meanwhile: whoever closed has said already that this claim leaves
            connection.close()
            raise StoreError("this connection was closed: connect again")
        self._limit.server_has_room()
        return connection

    def _meet(self, connection: Connection, seconds: float) -> None:
        """See whether a new connection leads to another primary than those before it.

        Raises:
            NoRoom: the server has too many connections, and ends this one.
        """
        try:
            reply = connection.ask(IDENTITY, seconds)
            if isinstance(reply, ReplyError) and is_full(reply):
                raise full(self.factory.where, reply)
        except BaseException as error:
            connection.close()
            if isinstance(error, ValueError):
                raise garbled(self.factory.where, error) from None
            if isinstance(error, OSError):
                raise unreachable(self.factory.where, error) from error
            raise
        if self._identity.differs(reply):
            self.distrust()
            connection.generation, connection.primary = self._generation, self._primary

    def _refused(self, message: Message, error: ReplyError, once_more: bool, asking: bool) -> Any:
        code = code_of(error)
        if code == "NOSCRIPT":
            return self.ask(message._replace(command=with_source(message.command)), asking=asking)
        if code == "OOM" and (excepted := without_memory(message.command)) is not None:
            return self.ask(message._replace(command=excepted), asking=asking)
        if code == "READONLY":
            self.drop()  # after a fail-over the old primary is a replica; connecting anew finds the new one
            if once_more:
                return self.ask(message, once_more=False)
        return refuse(error, self.factory.where, message.line)

    def distrust(self) -> None:
        """There is another primary: what is connected leads to the old one."""
        self._primary = object()
        self.drop()
        self.moved()

    def drop(self) -> None:
        """Close the connections that nobody uses now, and the others when they come back."""
        self._generation = object()
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break  # another thread took the last one

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one."""
        self._limit.rest()

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._limit.close()
        self.drop()
        while self._late:
            for connection in self._late.popitem()[1]:
                connection.close()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        self._limit.reset()
        self.close()
        self._limit.reset()
        self._closed = False

    def beside(self, where: str, io_timeout: float) -> "Pool":
        """Return connections to another server of the same group, by its host and port; the caller closes them."""
        return Pool(beside(self.factory, where, io_timeout))

    def batches(self, claims: Sequence[Claim], most: int) -> list[Sequence[Claim]]:
        """Return which claims may be renewed by one call."""
        return [claims[start : start + most] for start in range(0, len(claims), most)]

    def node_of(self, line: str) -> None:
        """Return the node that a line lives on: there is one."""

    def at(self, node: None) -> "Pool":
        """Return the connections to a node."""
        return self

    def look_again_soon(self) -> None:
        """There is no map to look at again."""
