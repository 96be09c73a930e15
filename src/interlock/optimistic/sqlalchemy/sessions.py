"""Sessions of SQLAlchemy as backends of `transact`, for threads and for asyncio tasks: a new session for each try."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn

from sqlalchemy import Engine, Table, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.optimistic.errors import TryAgain
from interlock.optimistic.sqlalchemy.connections import begin_writing, connection_of
from interlock.optimistic.sqlalchemy.reads import Reads, RowChanged, same
from interlock.optimistic.tries import Tries

CHANGED = (RowChanged, StaleDataError)
PASSING_STATES = {"40001", "40P01"}  # serialization failure, deadlock
PASSING_NUMBERS = {1205, 1213, 1020}  # MySQL and MariaDB: lock wait time-out, deadlock, record has changed
NO_SAVEPOINT = 1305  # it has gone
PASSING_SQLITE = "database is locked"


class BaseAttempt:
    """The part of an attempt that both colours share."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._reads = Reads(session)
        self._said: Sequence[Any] = ()

    @property
    def keys(self) -> Sequence[Any]:
        """What was read, for messages."""
        return self._reads.keys or self._said

    def _refuse_keys(self) -> NoReturn:
        raise InvalidArgument("what the function reads by its session is watched; there are no keys to be given")

    def _verify_and_flush(self) -> bool:
        self._said = self._reads.keys
        try:
            self._reads.verify()
            self._session.flush()
        except CHANGED:
            return False
        return True

    def _passed(self, error: BaseException | None) -> bool:
        """Tell whether a try ended because somebody changed what it read: then there is another one."""
        self._said = self._said or self._reads.keys
        return isinstance(error, CHANGED)


class SessionAttempt(BaseAttempt):
    """One try; see `interlock.optimistic.Attempt`."""

    @property
    def transaction(self) -> Session:
        """The session."""
        return self._session

    def watch(self, keys: Sequence[Any]) -> None:
        """Refuse: what is read is watched."""
        self._refuse_keys()

    def read(self, request: Any) -> Any:
        """Execute a statement."""
        return self._session.execute(request)

    def commit(self) -> bool:
        """Commit, if what was read is unchanged."""
        try:
            if not self._verify_and_flush():
                return False
        except DBAPIError as error:
            raise_translated(error)
        try:
            self._session.commit()
        except DBAPIError as error:
            raise_at_commit(error)
        return True

    def __enter__(self) -> "SessionAttempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        passed = self._passed(error)
        self._session.close()
        if isinstance(error, DBAPIError) and passing(error):
            raise_translated(error)
        return passed


class AsyncSessionAttempt(BaseAttempt):
    """One try of a task, in a session of SQLAlchemy."""

    def __init__(self, session: AsyncSession) -> None:
        super().__init__(session.sync_session)
        self._asession = session

    @property
    def transaction(self) -> AsyncSession:
        """The session."""
        return self._asession

    async def watch(self, keys: Sequence[Any]) -> None:
        """Refuse: what is read is watched."""
        self._refuse_keys()

    async def read(self, request: Any) -> Any:
        """Execute a statement."""
        return await self._asession.execute(request)

    async def commit(self) -> bool:
        """Commit, if what was read is unchanged."""
        try:
            if not await self._asession.run_sync(lambda _: self._verify_and_flush()):
                return False
        except DBAPIError as error:
            raise_translated(error)
        try:
            await self._asession.commit()
        except DBAPIError as error:
            raise_at_commit(error)
        return True

    async def __aenter__(self) -> "AsyncSessionAttempt":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        passed = self._passed(error)
        await self._asession.close()
        if isinstance(error, DBAPIError) and passing(error):
            raise_translated(error)
        return passed


class SessionBackend:
    """An Engine, or a sessionmaker, as a backend for threads.

    Args:
        where: what sessions are made of.
    """

    def __init__(self, where: Any) -> None:
        if isinstance(where, Engine):
            where = sessionmaker(where, expire_on_commit=False)
        if not isinstance(where, sessionmaker):
            raise InvalidArgument(f"transact() takes an Engine or a sessionmaker of SQLAlchemy, not {_shown(where)}")
        self._make = where

    def begin(self, tries: Tries) -> SessionAttempt:
        return SessionAttempt(self._make())


class AsyncSessionBackend:
    """An AsyncEngine, or an async_sessionmaker, as a backend for asyncio tasks.

    Args:
        where: what sessions are made of.
    """

    def __init__(self, where: Any) -> None:
        if isinstance(where, AsyncEngine):
            where = async_sessionmaker(where, expire_on_commit=False)
        if not isinstance(where, async_sessionmaker):
            raise InvalidArgument(
                f"atransact() takes an AsyncEngine or an async_sessionmaker of SQLAlchemy, not {_shown(where)}"
            )
        self._make = where

    def begin(self, tries: Tries) -> AsyncSessionAttempt:
        return AsyncSessionAttempt(self._make())


def _shown(where: object) -> str:
    return f"{type(where).__name__} (a session is used up by one try)" if isinstance(where, Session) else repr(where)


def write_row(session: Session, table: Table, row: Any, version: str | None = None, **values: Any) -> None:
    """Write a row of a Table that was read before, in the function of `transact`, if it is unchanged.

    Args:
        session: what the function was given; of an AsyncSession its `sync_session`, by `run_sync`.
        table: the table.
        row: the row as it was read, with its primary key; all of its columns are compared.
        version: the column that counts the changes, then only that is compared, and counted up.
        values: what to write, by the names of columns.

    Raises:
        InvalidArgument: the row has not the columns that are needed.
        TryAgain: it was changed or removed; `transact` handles that.
    """
    read = dict(row._mapping)
    names = [version] if version is not None else [name for name in read if name in table.c]
    missing = [each for each in (*(column.key for column in table.primary_key), *names) if each not in read]
    if missing or not table.primary_key:
        raise InvalidArgument(f"read the primary key too, and what is compared, not without {', '.join(missing)}")
    where = [column == read[column.key] for column in table.primary_key]
    begin_writing(connection_of(session, table))
    found = session.execute(select(*(table.c[name] for name in names)).where(*where).with_for_update()).one_or_none()
    if found is None or not all(same(table.c[name], found[index], read[name]) for index, name in enumerate(names)):
        raise RowChanged(f"a row of {table} was changed by somebody else")
    if version is not None:
        values[version] = read[version] + 1
    session.execute(update(table).where(*where).values(**values))


def passing(error: DBAPIError) -> bool:
    """Tell whether the database undid the transaction for the sake of others, so that a new try may do."""
    plain = error.orig
    state = getattr(plain, "sqlstate", None) or getattr(plain, "pgcode", None)
    args = getattr(plain, "args", ())
    number = args[0] if args and isinstance(args[0], int) else None
    if number == NO_SAVEPOINT and isinstance(error.__context__, DBAPIError):
        return passing(error.__context__)  # with the transaction, and what broke that is why
    return state in PASSING_STATES or number in PASSING_NUMBERS or PASSING_SQLITE in str(plain)


def raise_translated(error: DBAPIError) -> NoReturn:
    """Raise what `transact` promises for an error of the database before the commit.

    Raises:
        TryAgain: it may pass.
        StoreError: the database can't be asked.
        DBAPIError: as it is: the statement is wrong, or refused.
    """
    if passing(error):
        raise TryAgain(f"the database has undone the transaction: {error.orig}") from error
    if error.connection_invalidated:
        raise StoreError(f"the connection to the database failed, nothing was changed: {error.orig}") from error
    raise error


def raise_at_commit(error: DBAPIError) -> NoReturn:
    """Raise what `transact` promises for an error of the database at the commit.

    Raises:
        UnknownOutcome: no answer came.
    """
    if error.connection_invalidated:
        raise UnknownOutcome(f"no answer to the commit came: it may have been done, or not: {error.orig}") from error
    raise_translated(error)
