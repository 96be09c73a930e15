"""One session with PostgreSQL, as tasks use it.

libpq is used directly, without blocking: so an answer is awaited with a deadline, by whoever has time for it.
"""

from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.redaction import UNTOLD
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.stores.advisory import statements
from interlock.stores.advisory._async.session import AsyncSession
from interlock.stores.advisory.session import IO_TIMEOUT, Refusal, Rows

MISSING = ("42P01", "3F000")  # the sequence, or its schema
FLUSH = 0.1  # seconds
BEHIND = 3  # transactions that are opened behind a pooler, to see whether one of them gets our server


class AsyncPostgresSession(AsyncSession):
    """A session with PostgreSQL."""

    words = statements.POSTGRES
    _owes = False  # True while an answer is to come that nobody has waited for
    _connection: Any
    _plain: Any

    async def _open(self) -> None:
        await rt.offload(self._connect)
        pid, is_replica = (await self.say("first"))[-1]
        self.pid = int(str(pid))
        if self.pid != self.reported_pid:
            await self._refuse_lent()
        if is_replica == "t":
            raise StoreError(statements.REPLICA)
        await self.rows(statements.SET)
        with suppress(Refusal):
            await self.rows(statements.NOTICE_THE_END)
        try:
            await self.say("leap")
        except Refusal as missing:
            if missing.state not in MISSING:
                raise
            await self._make()

    def _connect(self) -> None:
        try:
            self._connection = psycopg.Connection.connect(self.options.conninfo, autocommit=True)
        except (psycopg.Error, OSError, UnicodeError) as error:
            if not self.options.torn:
                raise StoreError(f"PostgreSQL can't be reached: {error}") from error
        else:
            self._plain = self._connection.pgconn
            self.fd, self.pid = self._plain.socket, self._plain.backend_pid
            self.reported_pid = self.pid
            return
        # Not while the error is handled: its own text may show a part of the password.
        raise StoreError(f"PostgreSQL can't be reached; {UNTOLD}")

    async def _make(self) -> None:
        """Make the sequence, and set it beyond what it gave out before a crash and may have forgotten.

        The server writes down 32 numbers at a time, and may give one out before that is on the disk; a replica that
        takes over may lack more.  No session outlives either, so whoever takes a number after it has leapt.  Fences
        are set to the server's clock, in microseconds, which nobody takes numbers faster than.  Only where the clock
        was set back they leap over more: if they always did, those who lost many openings in a fail-over would leap
        too short.
        """
        sequence = self.options.sequence
        make = f"{self.words['make'].format(sequence=sequence)}{int(clock.time_of_day() * 1_000_000)}"
        try:
            await self.rows(f"SELECT pg_advisory_xact_lock({statements.OPENING}); {make}")
        except Refusal as error:
            raise StoreError(
                f"there is no sequence for the fences, and it can't be made ({error}); let an owner of the schema do "
                f"it: {make}; GRANT USAGE, UPDATE ON SEQUENCE {sequence} TO your_role"
            ) from error
        await self.say("leap")

    async def _refuse_lent(self) -> None:
        """Refuse a pooler that gives our session of the server to others between our statements.

        Its protocol tells another process than the server does.  So transactions are opened beside ours: a pooler in
        session mode leaves our session to us.
        """
        others = [type(self)(self.options, self._mutex) for _ in range(BEHIND)]
        try:
            for other in others:
                await rt.offload(other._connect)
                await other.rows("BEGIN NOT DEFERRABLE")
                other.pid = self.pid
                if await other.ping() or not await self.ping():
                    raise StoreError(statements.LENT)
        except (Refusal, UnknownOutcome) as error:  # in statement mode there are no transactions
            raise StoreError(f"{statements.LENT} ({error})") from error
        finally:
            for other in others:
                other.end()

    async def rows(self, text: str, seconds: float = IO_TIMEOUT) -> Rows:
        self.begin()
        try:
            if self._owes:
                with suppress(Refusal):
                    await self._answer(IO_TIMEOUT)
            self._owes = True  # before it does: an interrupt may come at any line
            self._plain.send_query(text.encode())
            return await self._answer(seconds)
        except psycopg.Error as error:
            raise self.broken(error) from error
        finally:
            self.over()

    async def _answer(self, seconds: float) -> Rows:
        plain, deadline = self._plain, clock.now() + seconds
        while (unsent := plain.flush()) or plain.is_busy():
            left = deadline - clock.now()
            if left <= 0:
                self.silent = True
                raise UnknownOutcome(f"PostgreSQL has not answered within {seconds:g} s")
            await rt.ready(self.fd, min(left, FLUSH) if unsent else left, bool(unsent))
            plain.consume_input()  # also before all is sent: a server that can't write does not read
        found, refusal = [], None
        while (result := plain.get_result()) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
                refusal = Refusal(state, result.error_message.decode(errors="replace").strip())
            for row in range(result.ntuples):
                values = [result.get_value(row, column) for column in range(result.nfields)]
                found.append(tuple(None if value is None else value.decode() for value in values))
        if plain.status != pq.ConnStatus.OK:
            raise self.broken(refusal)
        self._owes = self.silent = False
        if refusal is not None:
            raise refusal
        return found

    def has_ended(self) -> bool:
        try:
            self._plain.consume_input()
        except psycopg.Error:
            return True
        return bool(self._plain.status != pq.ConnStatus.OK)

    def close(self) -> None:
        if self.fd >= 0:
            self.fd = -1  # another file may have this number soon
            self._connection.close()
