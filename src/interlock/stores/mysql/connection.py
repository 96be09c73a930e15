"""A connection of PyMySQL, as one step after the other uses it; what is private of PyMySQL is used here alone.

`_read_timeout` is set before each statement: PyMySQL has one for all, and a renewal has less time than others.
"""

import math
from typing import Any, NamedTuple

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.remote.failures import Refused, ended, no_answer
from interlock.runtime import clock
from interlock.runtime.process import Descriptor, checked_pid
from interlock.stores.mysql.options import MysqlOptions
from interlock.stores.mysql.problems import READ_ONLY, meaning, refusal

SHORTEST = 0.001  # seconds
IN_TRANSACTION = 1  # a bit of the server's status
SET = (
    # Each statement is a transaction. At most a second is waited for a lock, so no step is done long after its caller
    # has given it up. No other isolation level: read committed is refused where the binary log has statements.
    "SET SESSION autocommit = 1, sql_mode = '', time_zone = '+00:00', timestamp = DEFAULT, "
    "innodb_lock_wait_timeout = 1, lock_wait_timeout = 1"
)
NO_LIMIT = ", max_statement_time = 0"  # MariaDB's; MySQL's is for SELECT only
LEVEL = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE"
ABOUT = "SELECT @@global.innodb_flush_log_at_trx_commit, CONCAT(@@global.read_only)"
UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"


class Done(NamedTuple):
    """What became of a statement.

    Attributes:
        rows: what it found.
        affected: how many rows it wrote.
        connection: which one it was performed on.
    """

    rows: tuple[tuple[Any, ...], ...]
    affected: int
    connection: "MysqlConnection"


class MysqlConnection:
    """As `remote.pool.AsyncConnection`, for threads.

    Args:
        options: how to connect.
        deadline: until when it must be ready.

    Attributes:
        durable: False if the server forgets the last commits in a crash.
        grants_at: when, by `clock.now`, locks may be granted on a server that was started just now.

    Raises:
        StoreError: it can't be used for locks.
    """

    trust: object = None

    def __init__(self, options: MysqlOptions, deadline: float) -> None:
        self._pid = checked_pid()
        self._where = options.where
        self._timeout = options.timeout
        self._driver = options.dial()
        try:
            if self._driver.server_status & IN_TRANSACTION:
                raise StoreError(
                    f"a new connection to {self._where} is in a transaction already: give locks their own"
                )
            self._file = Descriptor(self._driver._sock.fileno())
            self._cursor = self._driver.cursor(pymysql.cursors.Cursor)
            self._examine(options, deadline)
        except BaseException:
            self.close()
            raise

    def _examine(self, options: MysqlOptions, deadline: float) -> None:
        limit = NO_LIMIT if "MariaDB" in str(self._driver.get_server_info()) else ""
        self.ask(SET + limit, deadline)
        self.ask(LEVEL, deadline)
        ((durable, read_only),) = self.ask(ABOUT, deadline).rows
        if read_only not in ("0", "OFF", b"0", b"OFF"):  # bytes by an engine without Unicode
            raise refusal(READ_ONLY[0], "the server is read-only", self._where)  # also to an administrator
        self.durable = int(durable) == 1
        self.grants_at = 0.0
        if not self.durable:
            uptime = int(self.ask(UPTIME, deadline).rows[0][1])
            self.grants_at = clock.now() + options.grace - uptime + 1  # it counts whole seconds

    def ask(self, statement: str, deadline: float) -> Done:
        """Perform a statement.

        Raises:
            Refused: the server did nothing.
            UnknownOutcome: the connection ended, or there was no answer in time.
        """
        left = deadline - clock.now()
        if left <= 0:
            raise Refused(f"{self._where}: the time was over before the step was sent; nothing was done")
        self._see_that_it_is_ours()
        self._driver._read_timeout = max(SHORTEST, min(left, self._timeout))
        try:
            affected = self._cursor.execute(statement)
            rows: Any = self._cursor.fetchall() if self._cursor.description else ()
        except (pymysql.MySQLError, OSError) as error:
            if isinstance(error.__context__, TimeoutError):
                raise no_answer(self._where, self._timeout) from error
            raise meaning(error, self._where) from error
        return Done(rows, affected, self)

    def _see_that_it_is_ours(self) -> None:
        """Raise ConnectionEnded if the program has closed its descriptor, which may be another file by now."""
        if not self._file.is_ours():
            if self._driver._sock is not None:
                self._driver._sock.detach()
            raise ended(self._where, OSError("the program has closed its descriptor"))

    def abandon(self, undo: object) -> None:
        """Close it; what is on its way is made void by the next swap."""
        self.close()

    def close(self) -> None:
        """Close it; in a forked child, leave the parent's alone."""
        if self._pid == checked_pid() and math.isfinite(self._timeout):
            try:
                self._see_that_it_is_ours()
                self._driver.close()
            except Exception:
                pass  # it is gone, which is what was wanted
