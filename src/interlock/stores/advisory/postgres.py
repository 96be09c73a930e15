"""A session with PostgreSQL: its connection, how it is set up, and the detection of its end."""

from contextlib import suppress

import psycopg
from psycopg import pq

from interlock.core.errors import StoreError
from interlock.core.redaction import UNTOLD
from interlock.remote.failures import Refused
from interlock.runtime import clock
from interlock.stores.advisory import statements
from interlock.stores.advisory._sync.postgres import perform
from interlock.stores.advisory.session import BaseSession, Rows

MISSING = ("42P01", "3F000")  # the sequence, or its schema


class PostgresSession(BaseSession):
    """A session with PostgreSQL."""

    words = statements.POSTGRES

    def connect(self) -> None:
        try:
            self.client = psycopg.Connection.connect(self.options.conninfo, autocommit=True)
        except (psycopg.Error, OSError, UnicodeError) as error:
            if not self.options.torn:
                raise StoreError(f"PostgreSQL can't be reached: {error}") from error
        else:
            self.connected(self.client.pgconn.socket)
            self.pid = self.client.pgconn.backend_pid
            self._prepare()
            return
        # Outside of the except clause: the text of the chained error could show a part of the password.
        raise StoreError(f"PostgreSQL can't be reached; {UNTOLD}")

    def _prepare(self) -> None:
        """Set up a session that was connected just now, and set the sequence beyond what it issued before a crash.

        The server logs 32 numbers at a time, and may issue one before the log is on disk; a replica that is promoted
        may lack more.  No session survives a crash or fail-over, so every session that takes a number after it has
        leapt.  "leap" sets the sequence to the server's clock in microseconds, since numbers are issued more slowly
        than that.  Only if the clock is behind the sequence (it was set back), it adds a constant instead.  Adding
        the constant each time would not do: a promoted replica that lost many such additions would leap too short.
        """
        pid, is_replica = self.say(self.text("first"))[-1]
        if pid != str(self.pid):
            raise StoreError(statements.POOLED)
        if is_replica == "t":
            raise StoreError(statements.REPLICA)
        self.say(statements.SET)
        with suppress(Refused):
            self.say(statements.NOTICE_THE_END)
        try:
            self.say(self.text("leap"))
        except Refused as missing:
            if missing.code not in MISSING:
                raise
            self.make_sequence(int(clock.time_of_day() * 1_000_000))
            self.say(self.text("leap"))

    def perform(self, text: str, seconds: float | None) -> Rows:
        return perform(self, text, seconds)

    def has_ended(self) -> bool:
        self.see_that_it_is_ours()
        if not self.alive:
            return True
        try:
            self.client.pgconn.consume_input()
        except psycopg.Error:
            return True
        return bool(self.client.pgconn.status != pq.ConnStatus.OK)

    def close(self) -> None:
        if self.fd >= 0:
            self.fd = -1  # the number may soon belong to another file
            self.client.close()
