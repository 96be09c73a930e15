"""One connection of an event loop, by asyncpg."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from interlock.runtime.shared import retrieve
from interlock.stores.postgresql.sessions import PING, WHOSE, Row, in_transaction, is_pooled
from interlock.stores.sql.problems import breaks, broken, no_answer, refusal
from interlock.stores.sql.statements import Statement, Texts

_ENDED = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


class AsyncpgConnection:
    """What `AsyncConnection` is on libpq.

    Args:
        connection: of asyncpg.
        where: to what database, without a password.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self.connection = connection
        self.where = where
        self.loop = asyncio.get_running_loop()
        self.cancelled: asyncio.CancelledError | None = None  # that came while a statement was underway
        self._over: Callable[[], object] | None = None
        self._said: Callable[[str], object] | None = None
        self._asking: asyncio.Future[Any] | None = None
        connection.add_termination_listener(self._terminated)
        if connection.is_in_transaction():
            self.close()
            raise in_transaction(where)

    @property
    def ended(self) -> bool:
        """True if it has ended, as far as it is known."""
        return bool(self.connection.is_closed())

    async def exchange(self, statement: Statement, deadline: float, io_timeout: float) -> list[Row]:
        """As `AsyncConnection.exchange`."""
        task = self.loop.create_task(self._perform(statement), name="interlock-asks")
        while not task.done():
            left = deadline - monotonic()
            if left <= 0:
                task.add_done_callback(retrieve)
                self.close()
                raise no_answer(self.where, io_timeout)
            try:
                await asyncio.wait((task,), timeout=left)
            except asyncio.CancelledError as error:
                self.cancelled = error
        if task.cancelled():
            raise broken(self.where, "the event loop ends")
        return task.result()

    async def _perform(self, statement: Statement) -> list[Row]:
        try:
            if not statement.words.startswith("SELECT"):
                await self.connection.execute(statement.words)  # perhaps several statements
                return []
            return [tuple(row) for row in await self.connection.fetch(statement.words, *statement.values)]
        except asyncpg.PostgresError as error:
            if breaks(error.sqlstate or "") or self.ended:
                raise broken(self.where, error) from error
            raise refusal(error.sqlstate or "", str(error), self.where) from error
        except _ENDED as error:
            raise broken(self.where, error) from error

    async def listen(
        self, channel: str, io_timeout: float, said: Callable[[str], object], over: Callable[[], object]
    ) -> bool:
        """As `AsyncConnection.listen`."""
        until = monotonic() + io_timeout
        if is_pooled(await self.exchange(WHOSE, until, io_timeout), self.connection.get_server_pid()):
            return False
        self._said, self._over = said, over
        try:
            async with asyncio.timeout_at(self.loop.time() + until - monotonic()):
                await self.connection.add_listener(channel, self._hear)
        except TimeoutError:
            raise no_answer(self.where, io_timeout) from None
        except (asyncpg.PostgresError, *_ENDED) as error:
            raise broken(self.where, error) from error
        return True

    def _hear(self, connection: Any, pid: int, channel: str, message: str) -> None:
        if self._said is not None:
            self._said(message)

    def _terminated(self, connection: Any) -> None:
        """Note that it has ended, which asyncpg tells at once."""
        if self._over is not None:
            self._over()

    def ask_itself(self, channel: str) -> None:
        """As `AsyncConnection.ask_itself`."""
        statement = Texts.notify([channel], [PING])
        self._asking = self.loop.create_task(self._perform(statement), name="interlock-asks")
        self._asking.add_done_callback(retrieve)

    def is_sound(self) -> bool:
        """As `AsyncConnection.is_sound`."""
        return not self.ended and not self.connection.is_in_transaction()

    def close(self) -> None:
        """Close it, at once."""
        self._said = self._over = None
        try:
            self.connection.terminate()
        except RuntimeError:
            pass  # its loop has ended
