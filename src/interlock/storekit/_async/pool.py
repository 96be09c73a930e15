"""Exclusive connections to one server: bounded, first come, first served; one deadline for all that a request needs.

A store gives a function `open(deadline)`, which returns a connection that is ready, or raises Unreachable, Denied,
NoRoom or Refused.  `AsyncPooled` says what a connection must have.
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

MOST = 32  # connections of a process to one server, unless the user says otherwise


class AsyncPooled(Protocol[Q_contra, A_co]):
    """A connection that one request uses at a time.

    Attributes:
        trust: kept for the pool.
    """

    trust: object

    async def ask(self, request: Q_contra, deadline: float) -> A_co:
        """Send a request and return the reply.

        Args:
            request: what the store's own code understands.
            deadline: until when to wait, by `clock.now`.

        Raises:
            Refused: the server answered so; the connection is good.
            ConnectionEnded, NoAnswer: it is not used any more.
        """

    def abandon(self, undo: Q_contra | None) -> None:
        """Close it though a request has no answer; never waits.

        Args:
            undo: the request that the server must do right after that one if it ever arrives; None for none.
        """

    def close(self) -> None:
        """Close it; never waits."""


class AsyncPool(Generic[Q, A]):
    """The connections to one server.

    Args:
        open: makes a connection.
        where: the server, for messages.
        most: so many connections at once.
        undo: returns the request that takes a claim out again.

    Attributes:
        entering: ids of claims; one that was taken out before its request was sent is not sent any more.
    """

    def __init__(
        self,
        open: Callable[[float], rt.Result[AsyncPooled[Q, A]]],
        where: str,
        most: int = MOST,
        undo: Callable[[Claim], Q] | None = None,
    ) -> None:
        self._open = open
        self._where = where
        self._most = most
        self._undo = undo
        self._idle: list[AsyncPooled[Q, A]] = []
        self._room = most  # so many more may be made
        # The requests that wait; each gets a connection, or None: then it makes one.
        self._line: deque[rt.AsyncWaiter[tuple[AsyncPooled[Q, A] | None]]] = deque()
        self._mutex = rt.Mutex()
        self._trust = object()  # what connections have that nothing speaks against
        self.entering: set[str] = set()
        self.closed = False

    async def ask(self, request: Q, deadline: float, undo: Claim | None = None) -> A:
        """Send a request over a connection of its own and return the reply.

        Args:
            request: as for `AsyncPooled.ask`.
            deadline: until when to wait for a connection and the reply, by `clock.now`.
            undo: the claim that it may put into a line, which is taken out on the same connection if no answer comes.
                A request without one, which renews or frees, goes before others that wait for a connection.

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
            # Where the connection has ended, nothing can be late, and the same claim is asked for again.
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
        """Return a connection; `first`: before all others that wait for one."""
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
                may_make = False  # the server lets in no more: share what there is

    async def _made(self, deadline: float) -> AsyncPooled[Q, A]:
        try:
            connection = await self._open(deadline)
        except NoRoom:
            with self._mutex:
                self._room += 1  # not for the next in line, who would fail too
            raise
        except BaseException:
            self._put(None)
            raise
        connection.trust = self._trust
        return connection

    async def _wait(
        self, waiter: rt.AsyncWaiter[tuple[AsyncPooled[Q, A] | None]], deadline: float
    ) -> AsyncPooled[Q, A] | None:
        """Wait for a connection, or for room to make one: None.

        Raises:
            NoRoom: neither came in time.
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
        """Leave the line; what was told just now goes to the next one."""
        with self._mutex:
            if waiter in self._line:
                self._line.remove(waiter)
                return
        found = await waiter.wait(0.0)  # it was told: this waits for nothing
        if found is not None:
            self._put(found[0])

    def _put(self, connection: AsyncPooled[Q, A] | None) -> None:
        """Take back a connection, or room for one (None): for the next in line, or for later."""
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
        """Use no connection any more that there is now."""
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
        """Close all; those in use when their requests end."""
        self.closed = True
        self._drop(0)
        with self._mutex:
            line, self._line = self._line, deque()
        for waiter in line:
            waiter.wake()
