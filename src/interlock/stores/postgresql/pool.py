"""Statements on a database, for threads: a bounded number of connections, each used by one thread at a time."""

import os
from time import monotonic
from typing import Any

from psycopg import OperationalError
from psycopg.pq import TransactionStatus

from interlock.core.errors import StoreError
from interlock.runtime.polling import READABLE, WRITABLE, poller
from interlock.stores.postgresql.exchange import Row, checked, ended, rows_of, send
from interlock.stores.postgresql.sessions import Talk, Transactions
from interlock.stores.sql.pool import BoundedPool
from interlock.stores.sql.problems import broken, no_answer
from interlock.stores.sql.statements import Statement

LATEST = 1.0  # seconds that an interrupt waits for its step to come to its end


class Connection:
    """One connection.

    Args:
        connection: of psycopg.
        where: to what database, without a password.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self.pgconn = connection.pgconn
        self._pid = os.getpid()  # from here on it is closed when nobody has it any more
        self.connection = connection
        self.where = where
        try:
            checked(self.pgconn, where)
        except StoreError:
            self.close()
            raise
        self.pgconn.nonblocking = 1
        self.poll = poller()
        self.poll.register(self.pgconn.socket, READABLE)
        self._writing = poller()
        self._writing.register(self.pgconn.socket, READABLE | WRITABLE)

    def is_open(self) -> bool:
        """Tell whether an idle connection is still there, as far as this side knows."""
        try:
            if self.poll.poll(0):
                self.pgconn.consume_input()
        except OperationalError:
            return False
        return not ended(self.pgconn)

    def is_sound(self) -> bool:
        """Tell whether others may use it: it is in no transaction."""
        return self.pgconn.transaction_status == TransactionStatus.IDLE  # type: ignore[no-any-return]

    def exchange(self, statement: Statement, deadline: float, io_timeout: float) -> list[Row]:
        """Perform a statement, and return its rows.

        Raises:
            Refused: the database did nothing.
            UnknownOutcome: the connection ended, or there was no answer in time.
        """
        pgconn = self.pgconn
        try:
            send(pgconn, statement)
            while pgconn.flush():
                self._ready(self._writing, deadline, io_timeout)
                pgconn.consume_input()
            results: list[Any] = []
            while True:
                while pgconn.is_busy():
                    self._ready(self.poll, deadline, io_timeout)
                    pgconn.consume_input()
                result = pgconn.get_result()
                if result is None:
                    return rows_of(results, pgconn, self.where)
                results.append(result)
        except OperationalError as error:
            raise broken(self.where, error) from error
        except StoreError:
            raise
        except BaseException:
            self._await_end(min(deadline, monotonic() + LATEST))
            raise

    def _await_end(self, deadline: float) -> None:
        """After an interrupt, let the step come to its end: what takes the claim out again must come after it."""
        try:
            while True:
                while self.pgconn.is_busy():
                    self._ready(self.poll, deadline, 0)
                    self.pgconn.consume_input()
                if self.pgconn.get_result() is None:
                    return
        except (OperationalError, StoreError):
            pass  # whoever leaves is told

    def _ready(self, poll: Any, deadline: float, io_timeout: float) -> None:
        left = deadline - monotonic()
        if left <= 0 or not poll.poll(left * 1000 + 0.5):
            raise no_answer(self.where, io_timeout)

    def close(self) -> None:
        """Close it; in a forked child, leave the parent's alone, on which libpq would say goodbye."""
        if getattr(self, "_pid", None) == os.getpid():
            try:
                self.pgconn.finish()
            except Exception:
                pass  # it is gone, which is what was wanted

    def __del__(self) -> None:
        """Close what an interrupt took from its thread."""
        self.close()


class Pool(BoundedPool):
    """The connections of one store, as an `effects.Server`.

    Args:
        factory: what makes them.
    """

    def __init__(self, factory: Any) -> None:
        super().__init__(factory)
        self._transactions = Transactions(factory.options, factory.where)

    def _connect(self, deadline: float) -> Connection:
        return Connection(self.factory.dial(), self.factory.where)

    def _perform(self, connection: Any, statement: Statement) -> Talk:
        return self._transactions.perform(statement)
