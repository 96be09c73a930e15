"""A bounded pool of exclusive connections to one server, first come, first served.

One deadline limits each request.  A store gives a function `open(deadline)`, which returns a ready connection, or
raises Unreachable, Denied, NoRoom or Refused.  `AsyncPooled` describes a connection.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol

from interlock.core.claims import Claim
from interlock.core.errors import UnknownOutcome
from interlock.core.failures import ConnectionEnded, NoRoom, Refused, closed, no_room
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.storekit.wire import A, A_co, Q, Q_contra

MAX_CONNECTIONS = 32  # default connections of a process to one server


class AsyncPooled(Protocol[Q_contra, A_co]):
    """A connection that one request uses at a time.

    Attributes:
        trust: an object of the pool.
    """

    trust: object

    async def ask(self, request: Q_contra, deadline: float) -> A_co:
        """Send a request and return the reply.

        Args:
            request: a request of the store.
            deadline: the end of the wait, by `clock.now`.

        Raises:
            Refused: the server refused the request; the connection is good.
            ConnectionEnded, NoAnswer: the connection must not be used again.
        """

    def abandon(self, undo: Q_contra | None) -> None:
        """Close it while a request has no reply, without waiting.

        Args:
            undo: the request that the server must perform directly after it, if it arrives; None for none.
        """

    def close(self) -> None:
        """Close it without waiting."""


class AsyncPool(Generic[Q, A]):
    """The connections to one server.

    Args:
        open: opens a connection.
        where: the server, for messages.
        most: the maximum number of connections.
        undo: returns the request that removes a claim.

    Attributes:
        entering: ids of claims; a claim withdrawn before its request was sent is not sent.
    """

    def __init__(
        self,
        open: Callable[[float], rt.Result[AsyncPooled[Q, A]]],
        where: str,
        most: int = MAX_CONNECTIONS,
        undo: Callable[[Claim], Q] | None = None,
    ) -> None:
        self._open = open
        self._where = where
        self._most = most
        self._undo = undo
        self._idle: list[AsyncPooled[Q, A]] = []
        self._room = most  # how many more connections may be opened
        # The waiting requests; each gets a connection, or None to open one.
        self._line: deque[rt.AsyncWaiter[tuple[AsyncPooled[Q, A] | None]]] = deque()
        self._mutex = rt.Mutex()
        self._trust = object()  # the mark of all connections that are still trusted
        self.entering: set[str] = set()
        self.closed = False

    async def ask(self, request: Q, deadline: float, undo: Claim | None = None) -> A:
        """Send a request over an exclusive connection and return the reply.

        Args:
            request: as for `AsyncPooled.ask`.
            deadline: the end of the wait for a connection and the reply, by `clock.now`.
            undo: a claim that the request may enter; it is removed on the same connection if no reply comes.
                A request without one, which renews or releases, goes ahead of other waiting requests.

        Raises:
            StoreError: Unreachable and NoRoom if nothing was sent; Refused; ConnectionEnded or NoAnswer.
        """
        connection = await self._take(deadline, undo is None)
        if undo is not None and undo.id not in self.entering:
            self._put(connection)
            raise closed()
        try:
            reply = await connection.ask(request, deadline)
        except Refused as error:
            self._put(connection)
            if error.is_unavailable:
                self.invalidate_connections()
            raise
        except BaseException as error:
            # If the connection has ended, nothing can arrive late, and the same claim is requested again.
            if undo is None or self._undo is None or isinstance(error, ConnectionEnded):
                connection.abandon(None)
            else:
                connection.abandon(self._undo(undo))
            self._put(None)
            if isinstance(error, UnknownOutcome):
                self.invalidate_connections()
            raise
        self._put(connection)
        return reply

    async def _take(self, deadline: float, first: bool) -> AsyncPooled[Q, A]:
        """Return a connection; with `first`, ahead of all waiting requests."""
        may_make = True
        while True:
            waiter: rt.AsyncWaiter[tuple[AsyncPooled[Q, A] | None]] | None = None
            with self._mutex:
                if self.closed:
                    raise closed()
                if self._idle:
                    return self._idle.pop()
                if may_make and self._room:
                    self._room -= 1
                else:
                    waiter = rt.AsyncWaiter()
                    (self._line.appendleft if first else self._line.append)(waiter)
            connection = None if waiter is None else await self._wait(waiter, deadline)
            if connection is not None:
                return connection
            try:
                return await self._made(deadline)
            except NoRoom:
                if self._room == self._most:
                    raise
                may_make = False  # the server accepts no more connections: share the existing ones

    async def _made(self, deadline: float) -> AsyncPooled[Q, A]:
        try:
            connection = await self._open(deadline)
        except NoRoom:
            with self._mutex:
                self._room += 1  # not for the next request, which would fail too
            raise
        except BaseException:
            self._put(None)
            raise
        connection.trust = self._trust
        return connection

    async def _wait(
        self, waiter: rt.AsyncWaiter[tuple[AsyncPooled[Q, A] | None]], deadline: float
    ) -> AsyncPooled[Q, A] | None:
        """Wait for a connection, or for room to open one: None.

        Raises:
            NoRoom: the wait took too long.
        """
        began = clock.now()
        found = None
        try:
            found = await waiter.wait(deadline - clock.now())
        finally:
            if found is None:
                await self._give_up(waiter)
        if found is None:
            raise closed() if self.closed else no_room(self._where, self._most, clock.now() - began)
        return found[0]

    async def _give_up(self, waiter: rt.AsyncWaiter[tuple[AsyncPooled[Q, A] | None]]) -> None:
        """Stop waiting, and pass on what was just received."""
        with self._mutex:
            if waiter in self._line:
                self._line.remove(waiter)
                return
        found = await waiter.wait(0.0)  # already notified, so this does not wait
        if found is not None:
            self._put(found[0])

    def _put(self, connection: AsyncPooled[Q, A] | None) -> None:
        """Give a connection, or room for one (None), to the next request, or keep it."""
        with self._mutex:
            if connection is not None and (self.closed or connection.trust is not self._trust):
                connection.close()
                connection = None
            if self._line:
                self._line.popleft().wake((connection,))
            elif connection is None:
                self._room += 1
            else:
                self._idle.append(connection)

    def invalidate_connections(self) -> None:
        """Stop using all present connections."""
        self._trust = object()
        self._drop(0)

    def close_idle(self) -> None:
        """Close unused connections, except for one."""
        self._drop(1)

    def _drop(self, kept: int) -> None:
        with self._mutex:
            dropped = self._idle[: len(self._idle) - kept]
            del self._idle[: len(dropped)]
        for connection in dropped:
            connection.close()
            self._put(None)

    def close(self) -> None:
        """Close all connections; those in use after their requests."""
        self.closed = True
        self._drop(0)
        with self._mutex:
            line, self._line = self._line, deque()
        for waiter in line:
            waiter.wake()
