"""The lines in a table of MySQL or MariaDB: each row is loaded and swapped by one statement.

Each statement is a transaction, so a process that is stopped between two statements delays no other.  Times are
microseconds of the server's clock in UTC at the start of the statement.  If the statement then waits for the row, its
own lease ends a little early, and other leases count as expired a little late: both are safe.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from itertools import count
from time import sleep
from typing import Any, Literal, NamedTuple

import pymysql  # type: ignore[import-untyped]

from interlock.core.claims import MICROS, SEPARATOR, Check
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import NoRoom, Refused, TransientRefusal, no_answer
from interlock.core.line import QueuedClaim, StoreTime, decode, is_nothing
from interlock.runtime import clock, log
from interlock.runtime.process import OwnedDescriptor, checked_pid
from interlock.storekit._sync.pool import Pool
from interlock.storekit.compare_and_swap import SLACK, SwapStore
from interlock.stores.mysql import ddl
from interlock.stores.mysql.options import CONFLICT_CODES, NO_TABLE, READ_ONLY, WAITED, MysqlOptions, meaning, refusal

MIN_REPLY_WAIT = 0.001  # seconds to wait for a reply at least
IN_TRANSACTION = 1  # a bit of the server's status
SESSION_STATEMENT = (
    # Each statement is a transaction. It waits at most a second for a row lock, so no step runs long after its caller
    # has given up.
    "SET SESSION autocommit = 1, sql_mode = '', time_zone = '+00:00', timestamp = DEFAULT, "
    "innodb_lock_wait_timeout = 1, lock_wait_timeout = 1"
)
NO_LIMIT = ", max_statement_time = 0"  # MariaDB only: MySQL's equivalent limits only SELECT
# Not read committed: a server whose binary log has the statement format refuses writes at that level.
LEVEL = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE"


def set_read_timeout(driver: pymysql.Connection, seconds: float | None) -> None:
    """Set the time-out of a connection's replies, which PyMySQL fixes at the connect."""
    driver._read_timeout = seconds


def socket_of(driver: pymysql.Connection) -> Any:
    """Return the socket of a connection, which PyMySQL does not publish; None if closed."""
    return driver._sock


class Done(NamedTuple):
    """The result of a statement.

    Attributes:
        rows: the returned rows.
        affected: the number of written rows.
    """

    rows: tuple[tuple[Any, ...], ...]
    affected: int


class MysqlConnection:
    """A connection of the pool; see `remote.pool.AsyncConnection`.

    Args:
        options: how to connect.
        deadline: the end of the wait for the connection, by `clock.now`.

    Attributes:
        durable: False if the server can lose its last commits in a crash.
        grants_at: the time by `clock.now` from which such a server may grant locks after its start.

    Raises:
        StoreError: the server is unreachable, or unsuitable for locks.
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
                    f"A new connection to {self._where} is already in a transaction. Give locks their own."
                )
            self._file = OwnedDescriptor(socket_of(self._driver).fileno(), socket_of(self._driver))
            self._cursor = self._driver.cursor(pymysql.cursors.Cursor)
            self._examine(options, deadline)
        except BaseException:
            self.close()
            raise

    def _examine(self, options: MysqlOptions, deadline: float) -> None:
        limit = NO_LIMIT if "MariaDB" in str(self._driver.get_server_info()) else ""
        self.ask(SESSION_STATEMENT + limit, deadline)
        self.ask(LEVEL, deadline)
        about = "SELECT @@global.innodb_flush_log_at_trx_commit, CONCAT(@@global.read_only)"
        ((durable, read_only),) = self.ask(about, deadline).rows
        if read_only not in ("0", "OFF", b"0", b"OFF"):  # bytes by an engine without Unicode
            raise refusal(READ_ONLY[0], "the server is read-only", self._where)  # it would let an administrator write
        self.durable = int(durable) == 1
        self.grants_at = 0.0
        if not self.durable:
            uptime = int(self.ask("SHOW GLOBAL STATUS LIKE 'Uptime'", deadline).rows[0][1])
            self.grants_at = clock.now() + options.grace - uptime + 1  # + 1: the uptime is in whole seconds

    def ask(self, statement: str, deadline: float) -> Done:
        """Perform a statement.

        Raises:
            Refused: the server did nothing.
            UnknownOutcome: the connection ended, or there was no reply in time.
        """
        left = deadline - clock.now()
        if left <= 0:
            raise Refused(f"{self._where}: the time limit passed before the step was sent. Nothing was done. Retry.")
        set_read_timeout(self._driver, max(MIN_REPLY_WAIT, min(left, self._timeout)))
        try:
            self._file.check()
            affected = self._cursor.execute(statement)
            rows = self._cursor.fetchall() if self._cursor.description else ()
        except (pymysql.MySQLError, OSError) as error:
            if isinstance(error.__context__, TimeoutError):
                raise no_answer(self._where, self._timeout) from error
            raise meaning(error, self._where) from error
        return Done(rows, affected)

    def abandon(self, undo: object) -> None:
        """Close the connection; a request in progress needs no undo, because the next swap makes it fail."""
        self.close()

    def close(self) -> None:
        """Close the connection; do nothing in a forked child, because the parent uses it."""
        if self._pid == checked_pid():
            with suppress(Exception):  # the connection is closed already
                self._file.check()
                self._driver.close()


NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
DUPLICATE = "1062"
RECONNECT_PAUSE = 0.05  # seconds until a server that has too many connections is asked again
SWEEP_EVERY = 128  # swaps
SWEEP_PAGE = 64  # rows that one sweep checks
SWEEP_AGE_MICROS = 60 * MICROS  # microseconds without use, after which a name may be deleted
SKEW = 1.0  # seconds; doctor warns if the clocks differ by more


@lru_cache(4096)
def _key(key: str) -> str:
    """Return the SHA-256 of a key, because collations and index prefixes may merge names."""
    return f"X'{sha256(key.encode()).hexdigest()}'"


def _hex(text: str) -> str:
    return f"X'{text.encode().hex()}'"


def _at(now: int) -> str:
    return f"{NOW} BETWEEN {now - SLACK} AND {now + SLACK}"


class MysqlLines(SwapStore[int]):
    """The lines of one table: `storekit.compare_and_swap.SwapStore`.

    Args:
        options: how to connect.
    """

    def __init__(self, options: MysqlOptions) -> None:
        self._options = options
        self._table = f"`{options.table}`"
        self._pool = Pool(self._open, options.where, options.max_connections)
        self.patience = options.timeout  # seconds for which a step at a locked row is retried
        self._last: MysqlConnection | None = None
        self._swaps = count(1)

    def _open(self, deadline: float) -> MysqlConnection:
        # A read gives its first request half of the time, which may be too short to connect.
        self._last = MysqlConnection(self._options, clock.now() + self._options.timeout)
        return self._last

    def _ask(self, statement: str) -> Done:
        """Perform a statement.

        Raises:
            Refused, Unreachable: nothing was done.
            UnknownOutcome: there was no reply.
        """
        deadline = clock.now() + self._options.timeout
        reads = statement.startswith("SELECT")
        again = reads  # the connection may have ended, or a proxy may have dropped it: send a read once more
        while True:
            try:
                return self._pool.ask(statement, (clock.now() + deadline) / 2 if again else deadline)
            except UnknownOutcome:
                if not again:
                    raise
                again = False
            except NoRoom:
                if clock.now() + RECONNECT_PAUSE > deadline:
                    raise
                sleep(RECONNECT_PAUSE)
            except Refused as error:
                if again and not error.code:  # the first half of the time was over before the request was sent
                    again = False
                    continue
                if error.code in READ_ONLY:
                    self._pool.invalidate_connections()  # after a fail-over the primary may have another address
                if error.code in CONFLICT_CODES and reads and clock.now() < deadline:
                    continue  # the table was locked, or the statement was cancelled
                if error.code != NO_TABLE or not self._options.create or statement.startswith("CREATE"):
                    raise
                self._pool.ask(ddl(self._options.table), deadline)

    def load(self, key: str) -> tuple[int | None, str, int]:
        """See `SwapStore.load`."""
        ((version, line, now),) = self._ask(
            f"SELECT l.version, l.line, {NOW} FROM (SELECT 1) one LEFT JOIN {self._table} l ON l.k = {_key(key)}"
        ).rows
        return (None, "", int(now)) if version is None else (int(version), _text(line), int(now))

    def load_kept(self, key: str) -> tuple[str, str, int]:
        """See `SwapStore.load_kept`."""
        ((line, value, now),) = self._ask(
            f"SELECT l.line, l.kept, {NOW} FROM (SELECT 1) one LEFT JOIN {self._table} l ON l.k = {_key(key)}"
        ).rows
        return "" if line is None else _text(line), "" if value is None else _text(value), int(now)

    def swap(self, key: str, version: int | None, text: str, now: int, value: str | None = None) -> int | None:
        """See `SwapStore.swap`; the text contains neither quotes nor backslashes."""
        if version is None:
            namespace, _, name = key.partition(SEPARATOR)
            new = now  # unlike the version of any earlier row of this name: a swap of a deleted row must not succeed
            statement = (
                f"INSERT INTO {self._table} (k, line, version, namespace, name) SELECT {_key(key)}, '{text}', {new}, "
                f"{_hex(namespace)}, {_hex(name)} FROM (SELECT 1) one WHERE {_at(now)}"
            )
        else:
            new = version + 1
            also = "" if value is None else f", kept = {_hex(value)}"
            statement = (
                f"UPDATE {self._table} SET line = '{text}', version = {new}{also} WHERE k = {_key(key)} "
                f"AND version = {version} AND {_at(now)}"
            )
        try:
            done = self._ask(statement)
        except Refused as error:
            if error.code == DUPLICATE or (error.code in CONFLICT_CODES and error.code != WAITED):
                return None
            raise
        if next(self._swaps) % SWEEP_EVERY == 0:
            self._sweep(now)
        return new if done.affected else None

    def swap_many(self, swaps: Sequence[tuple[str, int, str]], now: int) -> list[int]:
        """See `SwapStore.swap_many`."""
        wanted = " UNION ALL ".join(
            f"SELECT {_key(key)} AS k, {version} AS version, '{text}' AS line" for key, version, text in sorted(swaps)
        )
        # FORCE INDEX: MariaDB would scan a small table, and wait for rows of other names that are locked.
        done = self._ask(
            f"UPDATE ({wanted}) w STRAIGHT_JOIN {self._table} l FORCE INDEX (PRIMARY) ON l.k = w.k "
            f"SET l.line = w.line, l.version = l.version + 1 WHERE l.version = w.version AND {_at(now)}"
        )
        return [version + 1 for _, version, _ in swaps] if done.affected == len(swaps) else []

    def permit(self, place: QueuedClaim) -> None:
        """See `SwapStore.permit`: after losing commits a server must not grant a held lock.

        Raises:
            Refused: the lease is longer than the grace of such a server.
            TransientRefusal: the server was started less than the grace ago.
        """
        about, grace = self._last, self._options.grace
        if about is None or about.durable:
            return
        hint = (
            f"innodb_flush_log_at_trx_commit is not 1, so a crash may lose the last commits, and no lock is granted "
            f"for {grace:g} s after a start. Set it to 1, or give all processes ?grace= (the longest lease)."
        )
        if place.ttl - 2 * SLACK > grace * MICROS:
            raise Refused(f"A lease of {(place.ttl - 2 * SLACK) / MICROS:g} s is too long for this server: {hint}")
        if clock.now() < about.grants_at:
            raise TransientRefusal(f"This server has just restarted and may have lost claims: {hint}")

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix` and have claims."""
        where = f" AND namespace = {_hex(prefix.removesuffix(SEPARATOR))}" if prefix else ""
        rows = self._ask(f"SELECT namespace, name FROM {self._table} WHERE line NOT LIKE '% 0\\n'{where}").rows
        return sorted(_text(namespace) + SEPARATOR + _text(name) for namespace, name in rows)

    def _sweep(self, now: int) -> None:
        """Delete unused names in a random part of the table; in all of a small table."""
        select = f"SELECT HEX(k), version, line FROM {self._table} WHERE LENGTH(line) < 80 AND k"
        try:
            start = secrets.token_hex(32)
            rows = self._ask(f"{select} >= X'{start}' ORDER BY k LIMIT {SWEEP_PAGE}").rows
            rows += self._ask(f"{select} < X'{start}' ORDER BY k LIMIT {SWEEP_PAGE - len(rows)}").rows
            old = StoreTime(now, now - SWEEP_AGE_MICROS)
            over = [(k, version) for k, version, line in rows if _is_over(_text(line), old)]
            if over:
                which = " OR ".join(f"(k = X'{k}' AND version = {version})" for k, version in over)
                self._ask(f"DELETE FROM {self._table} WHERE {which}")
        except (Refused, UnknownOutcome) as error:
            log.warn("Could not delete old names, retrying later: %s", error)

    def close_idle(self) -> None:
        self._pool.close_idle()

    def close(self) -> None:
        self._pool.close()

    def doctor(self) -> list[Check]:
        """Check the server's version, durability, clock, round trip and table."""
        version, flush = self._ask("SELECT VERSION(), @@global.innodb_flush_log_at_trx_commit").rows[0]
        sent = clock.now()
        now = int(self._ask(f"SELECT {NOW}").rows[0][0])
        took = clock.now() - sent
        skew = clock.time_of_day() - now / MICROS
        self.load(SEPARATOR)  # creates the table, if that is allowed
        about = self._ask(
            f"SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND "
            f"TABLE_NAME = '{self._options.table}'"
        ).rows
        grants_in = 0.0 if self._last is None else self._last.grants_at - clock.now()
        engine = str(about[0][0]) if about else "no engine"
        found: list[tuple[str, Literal["ok", "warn", "fail", ""], str]] = [
            (
                "version", "ok" if "MariaDB" in str(version) else "warn",
                f"{version}. These locks are tested on MariaDB only.",
            ),
            (
                "persistence", "" if int(flush) == 1 else "warn",
                f"innodb_flush_log_at_trx_commit is {flush}, so a crash may lose the last commits, and no lock is "
                f"granted for ?grace= seconds after each start. Set it to 1.",
            ),
            (
                "clock", "ok" if abs(skew) <= SKEW else "warn",
                f"The server's clock differs from this machine's by {skew * 1000:.0f} ms. Leases depend on the "
                f"server's clock alone, which must not jump. Let NTP slew the clock.",
            ),
            (
                "grace", "warn" if grants_in > 0 else "",
                f"The server has just started. It grants locks again in {grants_in:.0f} s.",
            ),
            ("server", "ok", f"The server replies in {took * 1e6:.0f} us."),
            (
                "table", "ok" if engine.lower() == "innodb" else "fail",
                f"{self._table} uses {engine}. With engines other than InnoDB a crash loses claims. Use InnoDB.",
            ),
        ]  # fmt: skip
        return [Check(name, status, detail) for name, status, detail in found if status]


def _is_over(text: str, old: StoreTime) -> bool:
    line = decode(text)
    return is_nothing(line, old) and line.record_expires <= old.lease


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else bytes(value).decode()
