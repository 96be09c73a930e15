"""Locks of the caller's own transaction: only its commit or rollback releases them.

PostgreSQL offers them as pg_advisory_xact_lock, in the same key space as session locks: a transaction's lock and a
lock of an interlock client exclude each other.  MySQL and SQLite have no such lock: GET_LOCK survives the end of a
transaction, and a transaction that writes to SQLite excludes all other writers anyway.
"""

import math
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from interlock.core.claims import SEPARATOR, LockSpec, checked_timeout
from interlock.core.errors import InvalidArgument, LockTimeout, NotHeld, StoreError
from interlock.stores.advisory.room import number_of
from interlock.stores.advisory.statements import SERVER

# txid_current() gives the transaction a number, so that its commit is written to disk, and the fence with it.
TRY = "SELECT CASE WHEN pg_try_advisory_xact_lock(:key) THEN nextval('{sequence}') + 0 * txid_current() END"
WAIT = (
    "WITH got AS MATERIALIZED (SELECT pg_advisory_xact_lock(:key)) "
    "SELECT nextval('{sequence}') + 0 * txid_current() FROM got"
)
TIME_OUT = "SELECT set_config('lock_timeout', :value, true)"
TIMED_OUT = "55P03"
LONGEST = 2_000_000  # seconds; a longer time-out counts as no limit


class TransactionGrant(NamedTuple):
    """A lock that a transaction holds until it ends.

    Attributes:
        name: the name of the lock.
        fence: the fencing token.
        transaction: the transaction of SQLAlchemy, or the savepoint, in which it was taken.
    """

    name: str
    fence: int
    transaction: Any

    @property
    def held(self) -> bool:
        """True while the transaction, or the savepoint, in which it was taken is open."""
        return bool(self.transaction.is_active)

    def check(self) -> None:
        """Raise unless the lock is held.

        Raises:
            NotHeld: the transaction was committed or rolled back.
        """
        if not self.held:
            raise NotHeld(f"the lock {self.name!r} ended with its transaction; take it again in the next one")

    def __repr__(self) -> str:
        return f"<TransactionGrant {self.name!r} {'held' if self.held else 'over'} fence={self.fence}>"


class _OfTransaction:
    """A lock that a transaction takes, and that the end of the transaction releases.

    Args:
        store: the store; the transaction must be on its server.
        spec: the lock.
        timeout: seconds that `acquire` waits by default; None for no limit.
        connection: a connection or session of SQLAlchemy.
    """

    def __init__(self, store: Any, spec: LockSpec, timeout: float | None, connection: Any) -> None:
        self.name = spec.key.partition(SEPARATOR)[2]
        self._key = {"key": number_of(spec.key)}
        self._store = store
        self._timeout = timeout
        self._connection = connection

    def release(self) -> NoReturn:
        """Raise: only the end of the transaction releases the lock.

        Raises:
            NotHeld: always.
        """
        raise NotHeld(f"the lock {self.name!r} is released by the commit or rollback of its transaction")

    def _granted(self, grant: TransactionGrant | None) -> TransactionGrant:
        if grant is None:
            raise LockTimeout(
                f"the lock {self.name!r} was not obtained in time; the transaction goes on without it",
                name=self.name,
                timeout=self._timeout,
            )
        return grant

    def _seconds(self, blocking: bool, timeout: float | None) -> float | None:
        return self._timeout if blocking and timeout is None else checked_timeout(blocking, timeout)

    def _take(self, target: Any, seconds: float | None) -> TransactionGrant | None:
        """Take the lock in the transaction of `target`, a Connection or a Session."""
        connection: Connection = target if isinstance(target, Connection) else target.connection()
        try:
            self._check(connection)
            fence = connection.execute(self._text(TRY), self._key).scalar()
            if fence is None and seconds != 0:
                fence = self._wait(connection, seconds)
        except DBAPIError as error:
            raise StoreError(f"the lock {self.name!r} could not be taken: {error.orig}") from error
        if fence is None:
            return None
        open_one = connection.get_nested_transaction() or connection.get_transaction()
        return TransactionGrant(self.name, int(fence), open_one)

    def _wait(self, connection: Connection, seconds: float | None) -> Any:
        """Wait for the lock; return the fence, or None after the time-out."""
        limit = 0 if seconds is None or seconds > LONGEST else max(1, math.ceil(seconds * 1000))
        # The time-out may come after the lock was granted: then the rollback of the savepoint releases it.
        try:
            with connection.begin_nested():
                before = connection.execute(text("SELECT current_setting('lock_timeout')")).scalar_one()
                connection.execute(text(TIME_OUT), {"value": f"{limit}ms"})
                fence = connection.execute(self._text(WAIT), self._key).scalar()
                connection.execute(text(TIME_OUT), {"value": before})
            return fence
        except DBAPIError as error:
            # psycopg2's name is pgcode.
            if TIMED_OUT not in (getattr(error.orig, "sqlstate", None), getattr(error.orig, "pgcode", None)):
                raise
            return None

    def _text(self, statement: str) -> Any:
        return text(statement.replace("{sequence}", self._store.sequence))

    def _check(self, connection: Connection) -> None:
        if connection.dialect.name != "postgresql":
            raise InvalidArgument(
                f"{connection.dialect.name} has no locks that end with a transaction: lock a row of yours (SELECT … "
                f"FOR UPDATE), or take the lock before the transaction and release it after"
            )
        plain: Any = connection.connection.dbapi_connection
        if getattr(plain, "autocommit", False) is True or getattr(plain, "isolation_level", "") == "autocommit":
            raise InvalidArgument("this connection commits each statement by itself, and the lock would end at once")
        known = connection.engine
        if known not in self._store.same_server:
            here = tuple(str(each) for each in connection.execute(text(SERVER)).one())
            if self._store.server() != [here]:
                raise InvalidArgument("the connection is to another server or database than these locks are on")
            self._store.same_server.add(known)


class TransactionLock(_OfTransaction):
    """A lock that the transaction of a `Connection` or `Session` holds until it ends."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> TransactionGrant | None:
        """Take the lock in the transaction of the connection.

        Args:
            blocking: False for one try.
            timeout: the most seconds to wait; None for the lock's own time-out.

        Returns:
            The grant; None if the lock was not free in time.  The transaction stays usable in both cases.

        Raises:
            InvalidArgument: the connection is to another database, or commits each statement by itself.
            StoreError: the database refused, for example because of a deadlock.
        """
        return self._take(self._connection, self._seconds(blocking, timeout))

    def __enter__(self) -> TransactionGrant:
        return self._granted(self.acquire())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the commit or rollback releases the lock."""


class AsyncTransactionLock(_OfTransaction):
    """A lock that the transaction of an `AsyncConnection` or `AsyncSession` holds until it ends."""

    async def acquire(self, blocking: bool = True, timeout: float | None = None) -> TransactionGrant | None:
        """Take the lock in the transaction of the connection; see `TransactionLock.acquire`."""
        found: TransactionGrant | None
        found = await self._connection.run_sync(self._take, self._seconds(blocking, timeout))
        return found

    async def __aenter__(self) -> TransactionGrant:
        return self._granted(await self.acquire())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the commit or rollback releases the lock."""
