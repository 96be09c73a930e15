"""One session with PostgreSQL.

libpq is used directly: a reply can then be awaited with a deadline, by whoever has time for it, and the socket
watched in between.
"""

import select
from collections.abc import Callable
from time import monotonic
from typing import Any

import psycopg
from psycopg import pq

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.redaction import UNTOLD
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.session import IO_TIMEOUT, AdvisorySession, Refusal, Standing

ALREADY_PREPARED = "42P05"

TRY = "SELECT CASE WHEN pg_try_advisory_lock{shared}($1::bigint) THEN nextval('{sequence}') END"
JOIN = (
    "SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1 "
    "AND (classid::bigint << 32 | objid::bigint) = $1::bigint AND mode = 'ExclusiveLock' AND database = "
    "(SELECT oid FROM pg_database WHERE datname = current_database())) THEN nextval('{sequence}') END"
)
WAIT = "WITH got AS MATERIALIZED (SELECT pg_advisory_lock{shared}($1::bigint)) SELECT nextval('{sequence}') FROM got"
KEEPALIVE = {"tcp_keepalives_idle": 15, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
LOOK = (
    "SELECT l.pid, l.granted, l.mode, a.application_name, extract(epoch FROM coalesce(a.query_start, now())) "
    "FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.objsubid = 1 "
    "AND (l.classid::bigint << 32 | l.objid::bigint) = $1::bigint "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "ORDER BY l.granted DESC, a.query_start"
)
STANDING = (
    "SELECT bool_or(l.granted) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' "
    "AND l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = $1::bigint AND l.pid = $2::int "
    "AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = $3::bigint "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
BORN = (
    "SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)
TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid = $1::int AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2::bigint"
)
ROOM = (
    "SELECT current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int + "
    "current_setting('max_prepared_transactions')::int), version()"
)
PING = "SELECT pg_backend_pid()"
FIRST_PING = "SET TRANSACTION NOT DEFERRABLE; " + PING  # else it may wait for all who write
UNLOCK = "SELECT pg_advisory_unlock{shared}($1::bigint)"


class PostgresSession(AdvisorySession):
    """A session with PostgreSQL; see `AdvisorySession`.

    Args:
        options: what the URL says.

    Raises:
        StoreError: the server can't be reached, or refuses.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._connection = _connected(options)
        self._plain: Any = self._connection.pgconn
        self._sequence = options.sequence
        self._prepared: set[str] = set()
        self._owed_since: float | None = None
        self.reported_pid = self._plain.backend_pid
        self.pid = self.reported_pid
        self.socket = self._plain.socket

    def _try(self, key: int, shared: bool) -> str | None:
        return self._ask(TRY, shared, key)[0]

    def _join(self, key: int) -> str | None:
        return self._ask(JOIN, True, key)[0]

    def _unlock(self, key: int, shared: bool) -> None:
        self._ask(UNLOCK, shared, key)

    def _owes(self) -> bool:
        return self._owed_since is not None

    @property
    def overdue(self) -> float:
        """As `AdvisorySession.overdue`."""
        since = self._owed_since
        return 0.0 if since is None or self.waits_for is not None else monotonic() - since

    # -- waiting ----------------------------------------------------------------------------------------

    def begin(self, key: int, shared: bool) -> None:
        """Ask for the lock, and do not wait for the answer: `collect` it when the socket can be read.

        Raises:
            StoreError: the connection failed.
        """
        with self.mutex:
            self._prepare(WAIT, shared, 1)
            self._begun = True
            self._send(WAIT, shared, key)
            self.waits_since = monotonic()
            self.waits_for = key, shared
            self._begun = False

    def _fence(self, key: int) -> str | None:
        (fence,) = self._all_rows()[0]
        return fence

    def cancel(self, waiting: AdvisorySession) -> None:
        """Break off what another session waits for."""
        with self.mutex:
            self._ask("SELECT pg_cancel_backend($1::int)", False, waiting.pid)

    # -- talking ----------------------------------------------------------------------------------------

    def ping(self, first: bool = False) -> int:
        """Return the process that serves this session.

        It is asked without a prepared statement: where a pooler has given the session to others, theirs has none.

        Args:
            first: True before the session is set up.

        Raises:
            StoreError: the server can't be asked.
        """
        with self.mutex:
            self._drain()
            ((found,),) = self._simple(FIRST_PING if first else PING)
            return int(str(found))

    def rows(self, sql: str, *values: object) -> list[list[str | None]]:
        """Perform a statement, and return its rows.

        Raises:
            Refusal: the server refuses.
            StoreError: the connection failed.
        """
        with self.mutex:
            self.settle()
            self._say(self._plain.send_query_params, sql.encode(), [_encoded(value) for value in values])
            return self._result(IO_TIMEOUT)

    def look(self, key: int) -> list[list[str | None]]:
        """Return who has a lock or waits for it: process, whether granted, mode, application, since when."""
        return self.rows(LOOK, key)

    def standing(self, waiting: AdvisorySession, key: int) -> Standing:
        """As `AdvisorySession.standing`."""
        ((granted,),) = self.rows(STANDING, key, waiting.pid, waiting.born)
        return "gone" if granted is None else "holds" if granted == "t" else "waits"

    def terminate(self, pid: int, born: Any) -> None:
        """As `AdvisorySession.terminate`."""
        self.rows(TERMINATE, pid, born)

    def about(self) -> tuple[str, str]:
        """Return the server's version, and how many locks it has room for."""
        (row,) = self.rows(ROOM)
        return str(row[1]).partition(",")[0], f"about {row[0]} locks of all"

    def dead_after(self) -> int:
        """As `AdvisorySession.dead_after`; each session says so itself, but of a pooler only that knows."""
        if self.pid != self.reported_pid:
            return 0
        idle, interval, count = KEEPALIVE.values()
        return idle + interval * count

    def _simple(self, sql: str) -> list[list[str | None]]:
        self._say(self._plain.send_query, sql.encode())
        return self._result(IO_TIMEOUT)

    def run(self, sql: str) -> None:
        """Perform several statements as one transaction.

        Raises:
            Refusal: the server refuses.
            StoreError: the connection failed.
        """
        with self.mutex:
            self.settle()
            self._simple(sql)

    def _ask(self, sql: str, shared: bool, *values: object) -> list[str | None]:
        self._drain()
        self._prepare(sql, shared, len(values))
        self._send(sql, shared, *values)
        return self._result(IO_TIMEOUT)[0]

    def _drain(self) -> None:
        if self._owed_since is not None and self.waits_for is None:
            try:
                self._result(IO_TIMEOUT)
            except Refusal:
                pass

    def _text(self, sql: str, shared: bool) -> str:
        return sql.replace("{shared}", "_shared" if shared else "").replace("{sequence}", self._sequence)

    def _prepare(self, sql: str, shared: bool, values: int) -> None:
        text = self._text(sql, shared)
        if text not in self._prepared:
            self._say(self._plain.send_prepare, _name(text), text.encode())
            try:
                self._result(IO_TIMEOUT)
            except Refusal as error:
                if error.state != ALREADY_PREPARED:  # by a call that was interrupted
                    raise
            self._prepared.add(text)

    def _send(self, sql: str, shared: bool, *values: object) -> None:
        name = _name(self._text(sql, shared))
        self._say(self._plain.send_query_prepared, name, [_encoded(value) for value in values])

    def _say(self, send: Callable[..., object], *what: object) -> None:
        if not self.alive:
            raise UnknownOutcome("the session with PostgreSQL has ended")
        try:
            self._owed_since = monotonic()  # before it is: an interrupt may come at any line
            send(*what)
            if not self._flush(monotonic() + IO_TIMEOUT):
                raise UnknownOutcome(f"PostgreSQL has not taken a statement within {IO_TIMEOUT:g} s")
        except psycopg.Error as error:
            raise self._broken(error) from error

    def _result(self, seconds: float) -> list[list[str | None]]:
        if not self._arrives(monotonic() + seconds):
            raise UnknownOutcome(f"PostgreSQL has not answered within {IO_TIMEOUT:g} s")
        return self._all_rows()

    def _arrives(self, deadline: float) -> bool:
        try:
            if not self._flush(deadline):
                return False
            while self._plain.is_busy():
                if not self._poll(select.POLLIN, deadline):
                    return False
                self._plain.consume_input()
            return True
        except psycopg.Error as error:
            raise self._broken(error) from error

    def _flush(self, deadline: float) -> bool:
        while self._plain.flush():
            if not self._poll(select.POLLOUT | select.POLLIN, deadline):
                return False
            self._plain.consume_input()  # a server that can't write does not read
        return True

    def _poll(self, events: int, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self.socket, events)
        return bool(poll.poll(max(0.0, deadline - monotonic()) * 1000))

    def _all_rows(self) -> list[list[str | None]]:
        rows: list[list[str | None]] = []
        refusal = None
        try:
            while (result := self._plain.get_result()) is not None:
                if result.status == pq.ExecStatus.FATAL_ERROR:
                    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
                    refusal = Refusal(state, result.error_message.decode(errors="replace").strip())
                for number in range(result.ntuples):
                    values = [result.get_value(number, column) for column in range(result.nfields)]
                    rows.append([None if value is None else value.decode() for value in values])
        except psycopg.Error as error:
            raise self._broken(error) from error
        if self._plain.status != pq.ConnStatus.OK:
            raise self._broken(refusal)
        self._owed_since = None
        if refusal is not None:
            raise refusal
        return rows

    # -- the end ----------------------------------------------------------------------------------------

    def _broken(self, error: Exception | None) -> UnknownOutcome:
        self.fail()
        return UnknownOutcome(f"the session with PostgreSQL has ended, and all that it held is free: {error}")

    def _close(self) -> None:
        self.socket = -1  # another file may have this number soon
        self._connection.close()


def _connected(options: Options) -> Any:
    try:
        return psycopg.Connection.connect(options.conninfo, autocommit=True)
    except (psycopg.Error, OSError, UnicodeError) as error:
        if not options.torn:
            raise StoreError(f"PostgreSQL can't be reached: {error}") from error
    # Not while the error is handled: its own text may show a part of the password.
    raise StoreError(f"PostgreSQL can't be reached; {UNTOLD}")


def _encoded(value: object) -> bytes:
    return str(value).encode()


def _name(text: str) -> bytes:
    return b"interlock_%x" % (hash(text) & 0xFFFFFFFFFFFFFFFF)
