"""PostgreSQL connections by libpq in pipeline mode, with a deadline per request.

psycopg connects; after that the code uses libpq directly (`psycopg.pq`), for absolute deadlines and notifications.
In pipeline mode several statements are one request: a process that is stopped after sending it holds no row lock.
"""

import encodings.idna  # noqa: F401 - the first host name would import it, which hangs in a child forked meanwhile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from interlock.core.errors import StoreError
from interlock.core.failures import ConnectionEnded, NoAnswer, Refused, Unreachable, ended, no_answer
from interlock.core.redaction import CAUSE_HIDDEN
from interlock.runtime import _aio as rt
from interlock.runtime import clock, log
from interlock.runtime.process import OwnedDescriptor, checked_pid
from interlock.storekit._async.listener import SILENCE
from interlock.stores.postgresql.options import PostgresOptions, connecting
from interlock.stores.postgresql.wire import (
    BEGIN,
    COMMIT,
    CONFLICT_CODES,
    IN_RECOVERY,
    ISOLATION,
    NO_FUNCTION,
    NO_SCHEMA,
    NO_TABLE,
    PREPARED,
    READ_ONLY,
    ROLLBACK,
    UNPREPARED,
    PgStatement,
    PostgresWire,
    TextRow,
    failure,
    finish,
    linger,
    not_connected,
    not_ours,
    notify_statement,
    notifying,
)

RETRY_LIMIT = 2.0  # seconds for which a step is retried that failed because of other transactions
RETRY_PAUSE = 0.005  # seconds between two tries
FULL_SOCKET = 0.001  # seconds until a full socket is tried again


async def dialled(options: PostgresOptions, deadline: float) -> object:
    """Return a new connection of psycopg, or of the program's own function.

    Raises:
        Unreachable, Denied, NoRoom: the connection failed.
        StoreError: the program's function returned a connection that is in a transaction.
    """
    try:
        if options.dial is not None:
            connection = await options.dial()
        else:
            arguments = await rt.offload(options.arguments) if options.blocks else options.arguments()
            connection = await psycopg.AsyncConnection.connect(
                **connecting(arguments, deadline - clock.now()), autocommit=True, prepare_threshold=None
            )
    except (psycopg.Error, OSError, UnicodeError) as error:  # OSError: no more files may be opened
        if not options.password_may_leak:
            raise not_connected(error, options.where) from error
    else:
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return connection
        raise StoreError(f"A new connection to {options.where} is in a transaction. `dial` must return new ones.")
    # Outside of the except clause, because the chained error could show part of the password.
    raise Unreachable(f"Cannot connect to {options.where}. {CAUSE_HIDDEN}")


class AsyncServer:
    """A database, for the threads of a process or the tasks of an event loop.

    Args:
        options: how to connect.
        wire: the statements.
        channel: the channel on which this process or loop is notified of promotions.

    Attributes:
        explicit: True if each transaction must set its isolation level, because the default is not read committed.
    """

    def __init__(self, options: PostgresOptions, wire: PostgresWire, channel: str) -> None:
        self.options = options
        self.wire = wire
        self.channel = channel
        self.explicit = False

    async def open(self, deadline: float) -> "AsyncPgConnection":
        """Return a new connection for requests; raises like `dialled`."""
        return AsyncPgConnection(await dialled(self.options, deadline), self)

    async def subscribe(self, deadline: float) -> "AsyncPgSubscription":
        """Return a new connection that listens; raises like `dialled`."""
        subscription = AsyncPgSubscription(await dialled(self.options, deadline), self)
        try:
            await subscription.listen(deadline)
        except BaseException:
            AsyncPgConnection.close(subscription)
            raise
        return subscription


class AsyncPgConnection:
    """A connection for one request at a time.

    Args:
        connection: a connection of psycopg; this object takes over its libpq connection.
        server: the database.
    """

    trust: object = None
    _replies = True  # it receives replies, not notifications

    def __init__(self, connection: object, server: AsyncServer) -> None:
        self._server = server
        self._where = server.options.where
        self._begin(connection)

    def _begin(self, connection: Any) -> None:
        pgconn: PGconn = connection.pgconn
        del connection.pgconn  # psycopg would warn when it collects a connection that is open
        self._pgconn = pgconn
        self._pid = checked_pid()
        self._file = OwnedDescriptor(pgconn.socket)
        self._ended = False
        self._prepared: set[bytes] = set()  # the names of statements that this session has prepared
        # A database with another encoding lacks characters, so texts are escaped.
        self._coding = "utf-8" if pgconn.parameter_status(b"server_encoding") == b"UTF8" else "unicode_escape"
        pgconn.nonblocking = 1
        pgconn.enter_pipeline_mode()
        self._arrivals = rt.AsyncArrivals(pgconn.socket, self._read, self._replies)

    def _is_ours(self) -> bool:
        """Return True if the descriptor is still ours; otherwise end the connection without libpq."""
        if self._ended or self._file.is_ours():
            return True
        self._end()
        not_ours.add(self._pgconn)
        return False

    def _end(self) -> None:
        """Stop waiting at the socket, whose number may soon belong to another connection."""
        self._ended = True
        self._arrivals.close()

    def _read(self) -> None:
        if not self._is_ours():
            return
        try:
            self._pgconn.consume_input()
            if self._pgconn.status == ConnStatus.BAD:
                self._end()
        except psycopg.OperationalError:
            self._end()

    async def ask(self, request: PgStatement, deadline: float) -> list[TextRow]:
        """Perform a statement as a separate transaction, and return its rows.

        Args:
            request: the statement.
            deadline: the end of the wait, by `clock.now`.

        Raises:
            Refused: the database did nothing.
            ConnectionEnded, NoAnswer: the statement may be performed.
        """
        if self._is_ours():
            self._arrivals.look()
        if self._ended:  # it ended while idle
            self._begin(await dialled(self._server.options, deadline))
        rows = await self._insist(request, deadline)
        others = notify_statement(rows, request.told) if request.told is not None and "\n" in rows[0][-1] else None
        if others is not None:
            try:
                await self._insist(others, deadline)
            except (Refused, ConnectionEnded, NoAnswer) as error:
                if not isinstance(error, Refused):
                    self._end()
                log.warn("Could not notify the next waiter, which will poll: %s", error)
        return rows

    async def _insist(self, statement: PgStatement, deadline: float) -> list[TextRow]:
        """Perform a statement; retry after a conflict, or after a repair."""
        made, until = False, min(deadline, clock.now() + RETRY_LIMIT)
        server = self._server
        while True:
            explicit = server.explicit  # read once, because another thread may set it in between
            try:
                if explicit:
                    return await self._in_transaction(deadline, statement)
                return await self.exchange((statement,), deadline)
            except Refused as error:
                code = error.code
                if code in (ISOLATION, READ_ONLY, IN_RECOVERY) and not explicit:
                    server.explicit = True
                elif code in (UNPREPARED, PREPARED) and clock.now() < until:
                    server.wire.prepared = {}
                elif code in (NO_TABLE, NO_FUNCTION, NO_SCHEMA) and server.options.create and not made:
                    made = True
                    await self._in_transaction(deadline, *server.wire.making)
                elif code in CONFLICT_CODES and clock.now() < until:
                    await rt.sleep(RETRY_PAUSE)
                else:
                    raise

    async def _in_transaction(self, deadline: float, *statements: PgStatement) -> list[TextRow]:
        """Perform statements in a transaction that sets its isolation level, by one request."""
        try:
            return await self.exchange((BEGIN, *statements, COMMIT), deadline)
        except Refused:
            await self.exchange((ROLLBACK,), deadline)
            raise

    async def exchange(self, statements: Sequence[PgStatement], deadline: float) -> list[TextRow]:
        """Perform statements by one request; return the rows of the last one that has rows."""
        results: list[PGresult] = []
        pgconn, arrivals = self._pgconn, self._arrivals
        try:
            name = self._send(statements, len(statements) == 1)
            while pgconn.flush() and clock.now() < deadline:  # the request is larger than the socket's buffer
                await arrivals.wait(min(deadline, clock.now() + FULL_SOCKET))
            while True:
                while not self._ended and pgconn.is_busy():
                    if not await arrivals.wait(deadline):
                        raise no_answer(self._where, self._server.options.timeout)
                if pgconn in not_ours:
                    raise ended(self._where)
                result = pgconn.get_result()
                if result is not None and result.status != ExecStatus.PIPELINE_SYNC:
                    results.append(result)
                elif result is not None or self._ended:
                    if name and results and results[0].status == ExecStatus.COMMAND_OK:
                        self._prepared.add(name)  # the session keeps it, even if the step failed
                    return self._rows(results)
        except psycopg.OperationalError as error:
            self._end()
            raise failure("", str(error).strip(), self._where, True) from error

    def _send(self, statements: Sequence[PgStatement], named: bool) -> bytes:
        """Send a request; return the name of the step that it prepares, b"" for none.

        Args:
            statements: the statements, in order.
            named: True if the caller can repeat them without names when a pooler does not support names.
        """
        new = b""
        for words, values, _ in statements:
            given = [value if isinstance(value, bytes) else value.encode(self._coding) for value in values]
            name = self._server.wire.prepared.get(words) if named else None
            if name is None:
                self._pgconn.send_query_params(words, given)
                continue
            if name not in self._prepared:
                new = name
                self._pgconn.send_prepare(name, words)
            self._pgconn.send_query_prepared(name, given)
        self._pgconn.pipeline_sync()
        return new

    def _rows(self, results: Sequence[PGresult]) -> list[TextRow]:
        rows: list[TextRow] = []
        for result in results:
            if result.status == ExecStatus.TUPLES_OK:
                columns = range(result.nfields)
                rows = [
                    [(result.get_value(row, column) or b"").decode(self._coding, "replace") for column in columns]
                    for row in range(result.ntuples)
                ]
            elif result.status == ExecStatus.FATAL_ERROR:
                code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
                text = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b""
                raise failure(code, text.decode(errors="replace").strip(), self._where, self._ended)
        if self._ended:
            raise ended(self._where)
        return rows

    def abandon(self, undo: PgStatement | None) -> None:
        """Abandon a request without a reply; send the statement that undoes it."""
        if undo is None or not self._is_ours() or self._ended or self._pid != checked_pid():
            self.close()
            return
        self._end()
        with suppress(psycopg.OperationalError):
            self._send((undo,), False)
            self._pgconn.flush()
        linger(self._pgconn, self._file)  # a server may drop the requests of a client that has disconnected

    def close(self) -> None:
        """Close the connection, except in a forked child, where the parent uses its session."""
        self._end()
        if self._pid == checked_pid():
            finish(self._pgconn, self._file)


class AsyncPgSubscription(AsyncPgConnection):
    """A connection that listens; see `AsyncSubscription`."""

    _replies = False

    async def listen(self, deadline: float) -> None:
        """Start to listen; behind a pooler, which misdelivers messages, let waiters poll."""
        rows = await self.exchange((PgStatement(b"SELECT pg_backend_pid()"),), deadline)
        self._deaf = self._server.wire.deaf = rows[0][0] != str(self._pgconn.backend_pid)
        if not self._deaf:
            await self.exchange((PgStatement(f'LISTEN "{self._server.channel}"'.encode()),), deadline)

    async def receive(self, deadline: float) -> list[str]:
        """See `AsyncSubscription.receive`."""
        while True:
            found = [note.extra.decode(errors="replace") for note in iter(self._pgconn.notifies, None)]
            if found:
                return found
            if self._ended:
                raise ended(self._where)
            if not await self._arrivals.wait(deadline):
                if self._deaf:
                    return []
                raise no_answer(self._where, self._server.options.timeout)

    async def confirm(self, deadline: float) -> None:
        """Send a notification to this connection itself, to test whether it still receives."""
        if not self._is_ours():
            raise ended(self._where)
        await self.exchange((notifying([(self._server.channel, "ping")]),), min(deadline, clock.now() + SILENCE))

    def close(self) -> None:
        """End the connection from any thread, and wake its waiting thread or task."""
        if self._ended or self._pid != checked_pid():
            return
        if not self._file.is_ours():
            not_ours.add(self._pgconn)
        with suppress(OSError):  # the connection is closed already
            self._file.shut_down()
