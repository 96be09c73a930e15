"""Locks of the caller's own transaction: its commit or rollback gives them back, and nothing else does.

PostgreSQL has that as pg_advisory_xact_lock, and it shares its names with the locks of sessions: a lock of a
transaction and one of a connection of interlock exclude each other. MySQL's GET_LOCK survives the end of a
transaction, and a transaction that writes to SQLite excludes all others anyway, so there is no such lock on them.
"""

import math
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

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
LONGEST = (1 << 31) - 1  # milliseconds that PostgreSQL can wait for a lock


class TransactionGrant:
    """A lock that a transaction holds until it ends.

    Attributes:
        name: of the lock.
        fence: the fencing token.
    """

    def __init__(self, name: str, fence: int, transaction: Any) -> None:
        self.name = name
        self.fence = fence
        self._transaction = transaction

    @property
    def held(self) -> bool:
        """True while the transaction, or the savepoint, in which it was taken is open."""
        return bool(self._transaction.is_active)

    def check(self) -> None:
        """Raise unless it is held.

        Raises:
            NotHeld: the transaction was committed or rolled back.
        """
        if not self.held:
            raise NotHeld(f"the lock {self.name!r} ended with its transaction; take it again in the next one")

    def __repr__(self) -> str:
        return f"<TransactionGrant {self.name!r} {'held' if self.held else 'over'} fence={self.fence}>"


class BaseTransactionLock:
    """The part that both colours share.

    Args:
        store: on whose server the transaction must be.
        spec: what is asked for.
        timeout: seconds that acquiring waits unless told otherwise; None for no limit.
        connection: of SQLAlchemy, or a session.
    """

    def __init__(self, store: Any, spec: LockSpec, timeout: float | None, connection: Any) -> None:
        self._store = store
        self._spec = spec
        self._timeout = timeout
        self._connection = connection

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._spec.key.partition(SEPARATOR)[2]

    def release(self) -> NoReturn:
        """Refuse: only the end of the transaction gives the lock back.

        Raises:
            NotHeld: always.
        """
        raise NotHeld(f"the lock {self.name!r} is released by the commit or rollback of its transaction")

    def _seconds(self, blocking: bool, timeout: float | None) -> float | None:
        return self._timeout if blocking and timeout is None else checked_timeout(blocking, timeout)

    def _late(self) -> LockTimeout:
        return LockTimeout(
            f"the lock {self.name!r} was not obtained in time; the transaction goes on without it",
            name=self.name,
            timeout=self._timeout,
        )

    def _take(self, target: Any, seconds: float | None) -> TransactionGrant | None:
        """Take the lock in the transaction of `target`, a Connection or a Session."""
        connection = target if isinstance(target, Connection) else target.connection()
        try:
            self._check(connection)
            fence = self._fence(connection, seconds)
        except DBAPIError as error:
            raise StoreError(f"the lock {self.name!r} could not be taken: {error.orig}") from error
        if fence is None:
            return None
        open_one = connection.get_nested_transaction() or connection.get_transaction()
        return TransactionGrant(self.name, fence, open_one)

    def _fence(self, connection: Connection, seconds: float | None) -> int | None:
        key = {"key": number_of(self._spec.key)}
        sequence = self._store.sequence
        fence = connection.execute(text(TRY.replace("{sequence}", sequence)), key).one()[0]
        if fence is None and seconds != 0:
            fence = self._waited(connection, key, seconds)
        return fence if fence is None else int(fence)

    def _waited(self, connection: Connection, key: dict[str, int], seconds: float | None) -> Any:
        """Return the fence when the lock is granted; None if it was not in time."""
        until = math.inf if seconds is None else monotonic() + seconds
        while True:
            left = min(until - monotonic(), LONGEST / 1000)
            limit = 0 if seconds is None else max(1, math.ceil(left * 1000))
            try:
                return self._wait(connection, key, limit)
            except DBAPIError as error:
                if not _timed_out(error):
                    raise
            if limit < LONGEST:  # else it is asked for once more
                return None

    def _wait(self, connection: Connection, key: dict[str, int], limit: int) -> Any:
        wait = WAIT.replace("{sequence}", self._store.sequence)
        # A time-out may come when the lock was granted already; the savepoint gives it back then.
        with connection.begin_nested():
            before = connection.execute(text("SELECT current_setting('lock_timeout')")).scalar_one()
            connection.execute(text(TIME_OUT), {"value": f"{limit}ms"})
            fence = connection.execute(text(wait), key).one()[0]
            connection.execute(text(TIME_OUT), {"value": before})
        return fence

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


class TransactionLock(BaseTransactionLock):
    """A lock that a transaction takes, and that its end gives back; for threads."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> TransactionGrant | None:
        """Take the lock in the transaction of the connection.

        Args:
            blocking: False for one try.
            timeout: seconds to wait at most; None for the lock's own time-out.

        Returns:
            The grant; None if others kept the lock. The transaction goes on in either case.

        Raises:
            InvalidArgument: the connection can't hold it.
            StoreError: the database refused, as for a deadlock.
        """
        return self._take(self._connection, self._seconds(blocking, timeout))

    def __enter__(self) -> TransactionGrant:
        grant = self.acquire()
        if grant is None:
            raise self._late()
        return grant

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing: the commit or rollback gives it back."""


class AsyncTransactionLock(BaseTransactionLock):
    """As `TransactionLock`, for asyncio tasks."""

    async def acquire(self, blocking: bool = True, timeout: float | None = None) -> TransactionGrant | None:
        """As `TransactionLock.acquire`."""
        seconds = self._seconds(blocking, timeout)
        found: TransactionGrant | None = await self._connection.run_sync(partial(self._take, seconds=seconds))
        return found

    async def __aenter__(self) -> TransactionGrant:
        grant = await self.acquire()
        if grant is None:
            raise self._late()
        return grant

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing: the commit or rollback gives it back."""


def _timed_out(error: DBAPIError) -> bool:
    # psycopg2 calls it pgcode.
    return (getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)) == TIMED_OUT


def lock_of(store: Any, spec: LockSpec, timeout: float | None, connection: Any) -> BaseTransactionLock:
    """Return the lock of a transaction.

    Raises:
        InvalidArgument: it is no connection of SQLAlchemy.
    """
    if isinstance(connection, (AsyncConnection, AsyncSession)):
        return AsyncTransactionLock(store, spec, timeout, connection)
    if isinstance(connection, (Connection, Session, scoped_session)):
        return TransactionLock(store, spec, timeout, connection)
    raise InvalidArgument(
        f"connection is a Connection or a Session of SQLAlchemy, or one of asyncio, not {type(connection).__name__}"
    )
