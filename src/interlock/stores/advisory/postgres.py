"""A session with PostgreSQL: its connection, and the detection of its end."""

import psycopg
from psycopg import pq

from interlock.core.errors import StoreError
from interlock.core.redaction import UNTOLD
from interlock.stores.advisory.session import BaseSession


class PostgresSession(BaseSession):
    """A session with PostgreSQL.

    Attributes:
        owes: True while a reply is due, which the next caller must read first if the present one gives up.
    """

    owes = False

    def connect(self) -> None:
        try:
            self.client = psycopg.Connection.connect(self.options.conninfo, autocommit=True)
        except (psycopg.Error, OSError, UnicodeError) as error:
            if not self.options.torn:
                raise StoreError(f"PostgreSQL can't be reached: {error}") from error
        else:
            self.connected(self.client.pgconn.socket)
            self.pid = self.client.pgconn.backend_pid
            return
        # Outside of the except clause: the text of the chained error could show a part of the password.
        raise StoreError(f"PostgreSQL can't be reached; {UNTOLD}")

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
