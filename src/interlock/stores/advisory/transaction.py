"""Locks of the caller's own transaction: its commit or rollback gives them back, and nothing else does.

PostgreSQL has that as pg_advisory_xact_lock, and it shares its names with the locks of sessions: a lock of a
transaction and one of a connection of interlock exclude each other.  MySQL's GET_LOCK survives the end of a
transaction, and a transaction that writes to SQLite excludes all others anyway, so there is no such lock on them.
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

# The number of the transaction is asked for so that its commit is written to the disk, and the fence with it.
TRY = "SELECT CASE WHEN pg_try_advisory_xact_lock(:key) THEN nextval('{sequence}') + 0 * txid_current() END"
WAIT = (
    "WITH got AS MATERIALIZED (SELECT pg_advisory_xact_lock(:key)) "
    "SELECT nextval('{sequence}') + 0 * txid_current() FROM got"
)
TIME_OUT = "SELECT set_config('lock_timeout', :value, true)"
TIMED_OUT = "55P03"
LONGEST = 2_000_000  # seconds; a time-out that is longer is none


class TransactionGrant(NamedTuple):
    """A lock that a transaction holds until it ends.

    Attributes:
        name: of the lock.
        fence: the fencing token.
        transaction: of SQLAlchemy, or a savepoint.
    """

    name: str
    fence: int
    transaction: Any

    @property
    def held(self) -> bool:
        """True while the transaction, or the savepoint, in which it was taken is open."""
        return bool(self.transaction.is_active)

    def check(self) -> None:
        """Raise unless it is held.

        Raises:
            NotHeld: the transaction was committed or rolled back.
        """
        if not self.held:
            raise NotHeld(f"the lock {self.name!r} ended with its transaction; take it again in the next one")

    def __repr__(self) -> str:
        return f"<TransactionGrant {self.name!r} {'held' if self.held else 'over'} fence={self.fence}>"


class _OfTransaction:
    """A lock that a transaction takes, and that its end gives back.

    Args:
        store: on whose server the transaction must be.
        spec: what is asked for.
        timeout: seconds that acquiring waits unless told otherwise; None for no limit.
        connection: of SQLAlchemy, or a session.
    """

    def __init__(self, store: Any, spec: LockSpec, timeout: float | None, connection: Any) -> None:
        self.name = spec.key.partition(SEPARATOR)[2]
        self._key = {"key": number_of(spec.key)}
        self._store = store
        self._timeout = timeout
        self._connection = connection

    def release(self) -> NoReturn:
        """Refuse: only the end of the transaction gives the lock back.

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
        """Return the fence when the lock is granted; None if it was not in time."""
        limit = 0 if seconds is None or seconds > LONGEST else max(1, math.ceil(seconds * 1000))
        # A time-out may come when the lock was granted already; the savepoint gives it back then.
        try:
            with connection.begin_nested():
                before = connection.execute(text("SELECT current_setting('lock_timeout')")).scalar_one()
                connection.execute(text(TIME_OUT), {"value": f"{limit}ms"})
                fence = connection.execute(self._text(WAIT), self._key).scalar()
                connection.execute(text(TIME_OUT), {"value": before})
            return fence
        except DBAPIError as error:
            # psycopg2 calls it pgcode.
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
    """As `_OfTransaction`, of a Connection or a Session."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> TransactionGrant | None:
        """Take the lock in the transaction of the connection.

        Args:
            blocking: False for one try.
            timeout: seconds to wait at most; None for the lock's own time-out.

        Returns:
            The grant; None if others kept the lock.  The transaction goes on in either case.

        Raises:
            InvalidArgument: the connection can't hold it.
            StoreError: the database refused, as for a deadlock.
        """
        return self._take(self._connection, self._seconds(blocking, timeout))

    def __enter__(self) -> TransactionGrant:
        return self._granted(self.acquire())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing: the commit or rollback gives it back."""


class AsyncTransactionLock(_OfTransaction):
    """As `_OfTransaction`, of one of asyncio."""

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
        """Nothing: the commit or rollback gives it back."""
