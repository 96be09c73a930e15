"""A session with PostgreSQL: connection, set-up, and detection of its end."""

from contextlib import suppress

import psycopg
from psycopg import pq

from interlock.core.errors import StoreError
from interlock.core.failures import Refused
from interlock.runtime import clock
from interlock.stores.advisory import statements
from interlock.stores.advisory._sync.postgres import perform
from interlock.stores.advisory.session import IO_TIMEOUT, BaseSession, Rows
from interlock.stores.postgresql._sync.connection import dialled
from interlock.stores.postgresql.options import PostgresOptions

NO_SEQUENCE_CODES = ("42P01", "3F000")  # the sequence, or its schema


class PostgresSession(BaseSession):
    """A session with PostgreSQL."""

    words = statements.POSTGRES

    def connect(self) -> None:
        """See `BaseSession.connect`; it sets the sequence beyond what it issued before a crash.

        The server logs 32 numbers at a time, and may issue one before the log is on disk; a replica that is promoted
        may lack more.  No session survives a crash or fail-over, so every session that takes a number after it has
        leapt.  "leap" sets the sequence to the server's clock in microseconds, because numbers are issued more slowly
        than that.  Only if the clock is behind the sequence (it was set back), it adds a constant instead.  Adding
        the constant each time would not do: a promoted replica that lost many such additions would leap too short.
        """
        arguments = dict(self.options.arguments)
        options = PostgresOptions(
            "PostgreSQL", password_may_leak=self.options.password_may_leak, arguments=lambda: arguments
        )
        self.client = dialled(options, clock.now() + IO_TIMEOUT)
        self.connected(self.client.pgconn.socket)
        self.pid = self.client.pgconn.backend_pid
        pid, is_replica = self.say(self.text("first"))[-1]
        if pid != str(self.pid):
            raise StoreError(statements.POOLED)
        if is_replica == "t":
            raise StoreError(statements.REPLICA)
        self.say(statements.SETTINGS_STATEMENT)
        with suppress(Refused):
            self.say(statements.NOTICE_THE_END)
        try:
            self.say(self.text("leap"))
        except Refused as missing:
            if missing.code not in NO_SEQUENCE_CODES:
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
