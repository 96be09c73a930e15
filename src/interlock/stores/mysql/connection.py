"""Statements on MySQL or MariaDB: a bounded number of connections, each used by one thread at a time."""

import os
import select
from time import monotonic, sleep
from typing import Any

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.stores.mysql.problems import AT_ONCE, READ_ONLY, TABLE, meaning, no_answer, refusal
from interlock.stores.sql.mysql import Done, Facts, Statements, ddl
from interlock.stores.sql.pool import BoundedPool, Talk
from interlock.stores.sql.problems import Full, Refused

COM_QUERY = 3
IN_TRANSACTION = 1  # a bit of the server's status
LATEST = 1.0  # seconds that an interrupt waits for its statement to come to its end
TRIES = 10  # of a step that others were in the way of
AGAIN = 0.05  # seconds until a server that has too many connections is asked again
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


class Connection:
    """One connection.

    Args:
        driver: the connection of PyMySQL.
        factory: what made it.
        deadline: until when it must be ready.

    Raises:
        StoreError: it can't be used for locks.
    """

    def __init__(self, driver: Any, factory: Any, deadline: float) -> None:
        self._driver = driver
        self._pid = os.getpid()  # from here on it is closed when nobody has it any more
        self.where = factory.where
        self._poll = select.poll()
        self._poll.register(driver._sock.fileno(), select.POLLIN)
        if driver.server_status & IN_TRANSACTION:
            raise StoreError(
                f"a new connection to {self.where} is in a transaction already: does a hook of the engine begin one?"
            )
        self._grace = factory.options.grace
        self._grants_at = 0.0
        self._durable = True
        self._examine(deadline, factory.io_timeout)

    def _examine(self, deadline: float, io_timeout: float) -> None:
        limit = NO_LIMIT if "MariaDB" in str(self._driver.server_version) else ""
        self.exchange(SET + limit, deadline, io_timeout)
        self.exchange(LEVEL, deadline, io_timeout)
        ((durable, read_only),) = self.exchange(ABOUT, deadline, io_timeout).rows
        if read_only not in ("0", "OFF", b"0", b"OFF"):  # bytes by an engine without Unicode
            # Also to an administrator, who could write all the same.
            raise refusal(READ_ONLY[0], "the server is read-only", self.where)
        if int(durable) != 1:
            self._durable = False
            uptime = int(self.exchange(UPTIME, deadline, io_timeout).rows[0][1])
            self._grants_at = monotonic() + self._grace - uptime + 1  # it counts whole seconds

    @property
    def facts(self) -> Facts:
        """What a step must know of the server."""
        return Facts(
            monotonic() >= self._grants_at,
            float("inf") if self._durable else self._grace,
            f"innodb_flush_log_at_trx_commit is not 1, so it forgets the last commits in a crash, and nobody gets a "
            f"lock for {self._grace:g} s after a start: make it 1, or give all processes ?grace= (the longest lease)",
        )

    def is_open(self) -> bool:
        """Tell whether an idle connection is still there, as far as this side knows; it has nothing to say."""
        return not self._poll.poll(0)

    def is_sound(self) -> bool:
        """Tell whether others may use it: it is in no transaction."""
        return not self._driver.server_status & IN_TRANSACTION

    def exchange(self, statement: str, deadline: float, io_timeout: float) -> Done:
        """Perform a statement.

        Raises:
            Refused: the server did nothing.
            UnknownOutcome: the connection ended, or there was no answer in time.
        """
        try:
            self._driver._execute_command(COM_QUERY, statement)
            left = deadline - monotonic()
            if left <= 0 or not self._poll.poll(left * 1000 + 0.5):
                raise no_answer(self.where, io_timeout)
            self._driver._read_query_result()
        except (pymysql.MySQLError, OSError) as error:
            raise meaning(error, self.where) from error
        except StoreError:
            raise
        except BaseException:
            # An interrupt: what takes the claim out again must come after the step.
            self._poll.poll(max(0.0, min(deadline - monotonic(), LATEST)) * 1000)
            raise
        result = self._driver._result
        return Done(result.rows or (), int(result.affected_rows or 0), int(result.insert_id or 0))

    def close(self) -> None:
        """Close it; in a forked child, leave the parent's alone."""
        if getattr(self, "_pid", None) == os.getpid():
            try:
                self._driver.close()
            except Exception:
                pass  # it is gone, which is what was wanted

    def __del__(self) -> None:
        """Close what an interrupt took from its thread."""
        self.close()


class Pool(BoundedPool):
    """The connections of one store.

    Args:
        factory: what makes them.
    """

    def _connect(self, deadline: float) -> Connection:
        """Return a new connection; wait for a server that has too many, unless one of ours is free meanwhile."""
        while True:
            try:
                return Connection(self.factory.dial(), self.factory, deadline)
            except Full:
                if self._idle or monotonic() + AGAIN > deadline:
                    raise
                sleep(AGAIN)

    def _perform(self, connection: Any, statement: Statements) -> Talk:
        """Perform a step; again where others were in its way, and after the table was made."""
        tries, create = TRIES, self.factory.options.create
        while True:
            try:
                return (yield from statement.talk(connection.facts))
            except Refused as error:
                if error.code in AT_ONCE and tries:
                    tries -= 1
                elif error.code == TABLE and create:
                    create = False
                    yield ddl(self.factory.options.table)
                else:
                    if error.code in READ_ONLY:
                        self.drop()  # the primary may have another address now
                    raise
