"""One session with PostgreSQL, as tasks use it.

libpq is used directly, without blocking: so an answer is awaited with a deadline, by whoever has time for it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.redaction import UNTOLD
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.stores.advisory import statements as sql
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.session import IO_TIMEOUT, AdvisorySession, Refusal, Rows

LONG = 1e9  # seconds that a wait for a lock may take


class AsyncPostgresSession(AdvisorySession):
    """A session with PostgreSQL.

    Args:
        options: what the URL says.
        mutex: of the room.
    """

    def __init__(self, options: Options, mutex: Any) -> None:
        super().__init__(options, mutex)
        self._statements = sql.postgres_statements(options.sequence)
        self._prepared: dict[str, bytes] = {}
        self._owes = False  # an answer is to come that nobody has waited for

    # -- opening ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and see that these locks can be kept here.

        Raises:
            StoreError: the server can't be reached, is a replica, or is behind a pooler that lends its sessions.
        """
        await rt.offload(self._connect)
        try:
            pid, born, is_replica = (await self.rows(sql.FIRST))[-1]
            self.pid, self.born = int(str(pid)), born
            if self.pid != self.reported_pid:
                await self._refuse_lent()
            if is_replica == "t":
                raise StoreError(sql.REPLICA)
            await self.rows(sql.SET)
            with suppress(Refusal):
                await self.rows(sql.NOTICE_THE_END)
            await self._leap()
        except Refusal as error:
            raise StoreError(f"PostgreSQL refuses to be used for locks: {error}") from error

    def _connect(self) -> None:
        try:
            self._connection = psycopg.Connection.connect(self.options.conninfo, autocommit=True)
        except (psycopg.Error, OSError, UnicodeError) as error:
            if not self.options.torn:
                raise StoreError(f"PostgreSQL can't be reached: {error}") from error
        else:
            self._plain: Any = self._connection.pgconn
            self.fd = self._plain.socket
            self.pid = self.reported_pid = self._plain.backend_pid
            return
        # Not while the error is handled: its own text may show a part of the password.
        raise StoreError(f"PostgreSQL can't be reached; {UNTOLD}")

    async def _leap(self) -> None:
        """Set the sequence, which is made if need be, beyond what it gave out before a crash and may have forgotten.

        The server writes down 32 numbers at a time, and may give one out before that is on the disk; a replica that
        takes over may lack more.  No session outlives either, so whoever takes a number after it has been here.
        Fences are set to the server's clock, in microseconds, which nobody takes numbers faster than.  Only where
        the clock was set back they leap instead: if they always did, those who lost many openings in a fail-over
        would leap too short.
        """
        try:
            await self.rows(self._statements.forward)
        except Refusal as missing:
            if missing.state not in ("42P01", "3F000"):
                raise
            make = f"{self._statements.make}{int(clock.time_of_day() * 1_000_000)}"
            try:
                await self.rows(f"SELECT pg_advisory_xact_lock({sql.OPENING}); {make}")
            except Refusal as error:
                raise StoreError(
                    f"there is no sequence for the fences, and it can't be made ({error}); let an owner of the "
                    f"schema do it: {make}; GRANT USAGE, UPDATE ON SEQUENCE {self.options.sequence} TO your_role"
                ) from error
            await self.rows(self._statements.forward)

    async def _refuse_lent(self) -> None:
        """Refuse a pooler that gives our session of the server to others between our statements.

        Its protocol tells another process than the server does.  So transactions are opened beside ours: a pooler in
        session mode leaves our session to us.
        """
        others: list[AsyncPostgresSession] = []
        try:
            for _ in range(sql.BEHIND):
                other = AsyncPostgresSession(self.options, self._mutex)
                await rt.offload(other._connect)
                others.append(other)
                await other.rows("BEGIN NOT DEFERRABLE")
                ((found,),) = await other.rows(sql.PING)
                if int(str(found)) == self.pid or not await self.ping():
                    raise StoreError(sql.LENT)
        except (Refusal, UnknownOutcome) as error:  # in statement mode there are no transactions
            raise StoreError(f"{sql.LENT} ({error})") from error
        finally:
            for other in others:
                other.end()

    # -- locks ------------------------------------------------------------------------------------------

    async def attempt(self, key: int, shared: bool) -> int | None:
        """Take the lock if it is free; return the fence, or None."""
        ((fence,),) = await self._perform(self._statements.attempt[shared], (key,))
        return fence if fence is None else int(fence)

    async def wait(self, key: int, shared: bool) -> int | None:
        """Wait for the lock; return the fence, or None if the wait was broken off: the lock may be there even so."""
        try:
            ((fence,),) = await self._perform(self._statements.wait[shared], (key,), LONG)
        except Refusal:
            return None
        return int(str(fence))

    async def give_back(self, key: int, shared: bool) -> None:
        """Give back what it has, after an answer that came too late was taken."""
        await self._perform(sql.UNLOCK, ())

    async def ping(self) -> bool:
        """Tell whether it is still ours; False if a pooler has given it to somebody else.

        It is asked without a prepared statement: where a pooler did, the session of the others has none.
        """
        ((found,),) = await self.rows(sql.PING)
        return int(str(found)) == self.pid

    async def cancel(self, waiting: "AsyncPostgresSession") -> None:
        """Break off what another session waits for; in vain if the server has not begun with it."""
        await self.rows(sql.CANCEL, waiting.pid)

    async def terminate(self, other: "AsyncPostgresSession") -> None:
        """End another session on the server."""
        await self.rows(sql.TERMINATE, other.pid, other.born)

    # -- looking ----------------------------------------------------------------------------------------

    async def look(self, key: int) -> Rows:
        """Return who has a lock or waits for it: process, whether granted, mode, application, since when."""
        return await self.rows(sql.LOOK, key)

    async def about(self) -> tuple[str, str, int]:
        """Return the version, how many locks there is room for, and when a dead machine's are free, in seconds.

        Each session tells the server so; but of a pooler only that knows, and 0 is returned.
        """
        ((version, room),) = await self.rows(sql.ABOUT)
        direct = self.pid == self.reported_pid
        return str(version).partition(",")[0], f"about {room} locks of all", sql.DEAD_AFTER if direct else 0

    def has_ended(self) -> bool:
        try:
            self._plain.consume_input()
        except psycopg.Error:
            return True
        return bool(self._plain.status != pq.ConnStatus.OK)

    # -- talking ----------------------------------------------------------------------------------------

    async def rows(self, text: str, *values: object) -> Rows:
        """Perform a statement, or several without values, and return the rows.

        Raises:
            Refusal: the server refuses.
            UnknownOutcome: the connection failed, or no answer came in time.
        """
        self.begin()
        try:
            await self._settle()
            if not values:
                return await self._talk(IO_TIMEOUT, self._plain.send_query, text.encode())
            return await self._talk(IO_TIMEOUT, self._plain.send_query_params, text.encode(), _encoded(values))
        finally:
            self.over()

    async def _perform(self, text: str, values: tuple[object, ...], seconds: float = IO_TIMEOUT) -> Rows:
        """Perform a statement that is prepared."""
        self.begin()
        try:
            await self._settle()
            name = self._prepared.get(text)
            if name is None:
                name = self._prepared[text] = b"interlock_%d" % len(self._prepared)
                try:
                    await self._talk(IO_TIMEOUT, self._plain.send_prepare, name, text.encode())
                except Refusal:
                    del self._prepared[text]
                    raise
            return await self._talk(seconds, self._plain.send_query_prepared, name, _encoded(values))
        finally:
            self.over()

    async def _settle(self) -> None:
        """Take the answer that came too late for whoever asked."""
        if self._owes:
            with suppress(Refusal):
                await self._answer(IO_TIMEOUT)

    async def _talk(self, seconds: float, send: Callable[..., object], *what: Any) -> Rows:
        try:
            self._owes = True  # before it does: an interrupt may come at any line
            send(*what)
        except psycopg.Error as error:
            raise self._broken(error) from error
        return await self._answer(seconds)

    async def _answer(self, seconds: float) -> Rows:
        plain, deadline = self._plain, clock.now() + seconds
        try:
            while (unsent := plain.flush()) or plain.is_busy():
                left = deadline - clock.now()
                if left <= 0:
                    self.silent = True
                    raise UnknownOutcome(f"PostgreSQL has not answered within {seconds:g} s")
                if await rt.ready(self.fd, min(left, 0.1) if unsent else left, bool(unsent)) or unsent:
                    plain.consume_input()  # also where it can't be written: a server that can't write does not read
            found, refusal = [], None
            while (result := plain.get_result()) is not None:
                if result.status == pq.ExecStatus.FATAL_ERROR:
                    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
                    refusal = Refusal(state, result.error_message.decode(errors="replace").strip())
                for row in range(result.ntuples):
                    values = [result.get_value(row, column) for column in range(result.nfields)]
                    found.append(tuple(None if value is None else value.decode() for value in values))
        except psycopg.Error as error:
            raise self._broken(error) from error
        if plain.status != pq.ConnStatus.OK:
            raise self._broken(refusal)
        self._owes = self.silent = False
        if refusal is not None:
            raise refusal
        return found

    def _broken(self, error: Exception | None) -> UnknownOutcome:
        self.alive = False
        return UnknownOutcome(f"the session with PostgreSQL has ended, and all that it held is free: {error}")

    def close(self) -> None:
        if self.fd >= 0:
            self.fd = -1  # another file may have this number soon
            self._connection.close()


def _encoded(values: tuple[object, ...]) -> list[bytes]:
    return [str(value).encode() for value in values]
