"""One connection of an event loop, by libpq's own protocol."""

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

from psycopg import OperationalError
from psycopg.pq import TransactionStatus

from interlock.core.errors import StoreError
from interlock.stores.postgresql.exchange import Row, ask_itself, checked, ended, messages_on, rows_of, send
from interlock.stores.postgresql.sessions import WHOSE, is_pooled, listening
from interlock.stores.sql.problems import broken, no_answer
from interlock.stores.sql.statements import Statement


class AsyncConnection:
    """One connection of the running loop.

    Args:
        connection: of psycopg.
        where: to what database, without a password.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self.connection = connection
        self.where = where
        self.pgconn = connection.pgconn
        try:
            checked(self.pgconn, where)
        except StoreError:
            self.pgconn.finish()
            raise
        self.pgconn.nonblocking = 1
        self.loop = asyncio.get_running_loop()
        self.ended = self._closed = False
        self._said: Callable[[str], object] | None = None  # what listens to this connection
        self._over: Callable[[], object] | None = None
        self.cancelled: asyncio.CancelledError | None = None  # that came while a statement was underway
        self._waiting: asyncio.Future[None] | None = None
        self._fd: int | None = self.pgconn.socket  # None once it may be another's: libpq gives it back by itself
        self.loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        try:
            self.pgconn.consume_input()
        except OperationalError:
            self.ended = True
        if self.ended or ended(self.pgconn):
            self.ended = True
            self._stop_reading()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        elif self._said is not None:
            self._hear()

    def _stop_reading(self) -> None:
        number, self._fd = self._fd, None
        if number is not None and not self.loop.is_closed():
            self.loop.remove_reader(number)

    async def exchange(self, statement: Statement, deadline: float, io_timeout: float) -> list[Row]:
        """Perform a statement to its end, also if the task is cancelled: what undoes it must come after it.

        Who asks raises what `cancelled` has then, whatever became of the statement.

        Returns:
            Its rows.

        Raises:
            Refused: the database did nothing.
            UnknownOutcome: the connection ended, or there was no answer in time.
        """
        pgconn = self.pgconn
        try:
            send(pgconn, statement)
            while pgconn.flush():  # more than a socket takes at once: a statement of many claims
                await self._next(deadline, io_timeout, 0.001)
                pgconn.consume_input()
            results: list[Any] = []
            while True:
                while not self.ended and pgconn.is_busy():
                    await self._next(deadline, io_timeout)
                result = pgconn.get_result()
                if result is None:
                    return rows_of(results, pgconn, self.where)
                results.append(result)
        except OperationalError as error:
            self._stop_reading()
            raise broken(self.where, error) from error

    async def _next(self, deadline: float, io_timeout: float, most: float = inf) -> None:
        """Wait until something has come, for so long at most; note the cancellation of the task, if there was one."""
        left = deadline - monotonic()
        if left <= 0:
            raise no_answer(self.where, io_timeout)
        waiting = self._waiting = self.loop.create_future()
        timer = self.loop.call_later(min(left, most), _set, waiting)
        try:
            await waiting
        except asyncio.CancelledError as error:
            self.cancelled = error
        finally:
            timer.cancel()
            self._waiting = None

    async def listen(
        self, channel: str, io_timeout: float, said: Callable[[str], object], over: Callable[[], object]
    ) -> bool:
        """Listen to a channel; nothing else is asked on this connection any more.

        Args:
            channel: its name.
            io_timeout: seconds to wait for each answer.
            said: called with each message.
            over: called when the connection has ended.

        Returns:
            False if a pooler lies between, which takes messages to others.
        """
        until = monotonic() + io_timeout
        if is_pooled(await self.exchange(WHOSE, until, io_timeout), self.pgconn.backend_pid):
            return False
        await self.exchange(listening(channel), until, io_timeout)
        self._said, self._over = said, over
        self._hear()  # something may have come with the answer
        return True

    def _hear(self) -> None:
        try:
            for message in messages_on(self.pgconn):
                if self._said is not None:
                    self._said(message)
        except OperationalError:
            self.ended = True
        if self.ended and self._over is not None:
            self._over()

    def ask_itself(self, channel: str) -> None:
        """Tell a channel that this connection listens to something, to find out whether it hears."""
        try:
            ask_itself(self.pgconn, channel)
        except OperationalError:
            self.ended = True

    def is_sound(self) -> bool:
        """Tell whether others may use it: it is open, and in no transaction."""
        return not self.ended and self.pgconn.transaction_status == TransactionStatus.IDLE

    def close(self) -> None:
        """Close it, once."""
        if self._closed:
            return
        self._closed = self.ended = True
        self._said = self._over = None
        if self._waiting is not None and not self.loop.is_closed():
            _set(self._waiting)
        self._stop_reading()
        try:
            self.pgconn.finish()
        except Exception:
            pass  # it is gone, which is what was wanted


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
