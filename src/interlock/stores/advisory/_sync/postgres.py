# Generated from _async/postgres.py by tools/unasync.py; change that one.
"""Requests to PostgreSQL for asyncio tasks.

They use libpq directly in non-blocking mode, so that a caller can wait for a reply until a deadline.
"""

import math
from contextlib import suppress

import psycopg
from psycopg import pq

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.remote.failures import Refused
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.stores.advisory import statements
from interlock.stores.advisory._sync.talk import Talk
from interlock.stores.advisory.postgres import PostgresSession
from interlock.stores.advisory.session import IO_TIMEOUT, Rows, refusal

MISSING = ("42P01", "3F000")  # the sequence, or its schema
FLUSH = 0.001  # seconds between two attempts to send the rest of a request


class PostgresTalk(Talk[PostgresSession]):
    """Requests to PostgreSQL."""

    words = statements.POSTGRES

    def prepare(self, session: PostgresSession) -> None:
        """Set up a session that was connected just now, and set the sequence beyond what it issued before a crash.

        The server logs 32 numbers at a time, and may issue one before the log is on disk; a replica that is promoted
        may lack more.  No session survives a crash or fail-over, so every session that takes a number after it has
        leapt.  "leap" sets the sequence to the server's clock in microseconds, since numbers are issued more slowly
        than that.  Only if the clock is behind the sequence (it was set back), it adds a constant instead.  Adding
        the constant each time would not do: a promoted replica that lost many such additions would leap too short.
        """
        pid, is_replica = (self.say(session, "first"))[-1]
        if pid != str(session.pid):
            raise StoreError(statements.POOLED)
        if is_replica == "t":
            raise StoreError(statements.REPLICA)
        self.rows(session, statements.SET)
        with suppress(Refused):
            self.rows(session, statements.NOTICE_THE_END)
        try:
            self.say(session, "leap")
        except Refused as missing:
            if missing.code not in MISSING:
                raise
            self.make_sequence(session, int(clock.time_of_day() * 1_000_000))
            self.say(session, "leap")

    def rows(self, session: PostgresSession, text: str, seconds: float | None = IO_TIMEOUT) -> Rows:
        session.begin()
        try:
            if session.owes:
                with suppress(Refused):
                    self._answer(session, IO_TIMEOUT)
            session.owes = True  # before the request is sent: an interrupt may come at any line
            session.client.pgconn.send_query(text.encode())
            return self._answer(session, math.inf if seconds is None else seconds)
        except psycopg.Error as error:
            raise session.broken(error) from error
        finally:
            session.over()

    def _answer(self, session: PostgresSession, seconds: float) -> Rows:
        plain, deadline = session.client.pgconn, clock.now() + seconds
        while (unsent := plain.flush()) or plain.is_busy():
            left = deadline - clock.now()
            if left <= 0:
                session.silent = True
                raise UnknownOutcome(f"PostgreSQL has not answered within {seconds:g} s")
            rt.readable(session.fd, (), min(left, FLUSH) if unsent else left)
            plain.consume_input()  # also while sending: a server that can't write its reply stops reading
        found, said = [], ("", "")
        while (result := plain.get_result()) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
                said = state, result.error_message.decode(errors="replace").strip()
            for row in range(result.ntuples):
                values = [result.get_value(row, column) for column in range(result.nfields)]
                found.append(tuple(None if value is None else value.decode() for value in values))
        if plain.status != pq.ConnStatus.OK:
            raise session.broken(said[1] or "closed by the server")
        session.owes = session.silent = False
        if any(said):
            raise refusal(*said)  # not kept in a local: its traceback would keep the caller's grant alive
        return found
