"""Connections that rows are written on: which one it is, and that it has transactions at all."""

from collections.abc import Callable
from typing import Any, NoReturn

from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.optimistic.tries import TryAgain


def connection_of(where: Any, target: object) -> Connection:
    """Return the connection on which a Table or a mapped class is written.

    Args:
        where: a Connection, or a Session, which may have another engine for each class.
        target: the Table, the mapped class or its mapper.

    Returns:
        The connection, in the transaction of the session.
    """
    if isinstance(where, Connection):
        return where
    found: Any = inspect(target)
    mapper = getattr(found, "mapper", None)
    connection: Connection = where.connection(bind_arguments={"mapper": mapper} if mapper else {"clause": found})
    return connection


def begin_writing(connection: Connection) -> None:
    """On SQLite, which has no locks on rows, take the lock of all writers: nothing changes from now on.

    Args:
        connection: of the transaction that will write.

    Raises:
        InvalidArgument: it commits each statement by itself.
    """
    if connection.get_transaction() is None:
        connection.begin()
    refuse_autocommit(connection)
    if connection.dialect.name == "sqlite" and not _in_transaction(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def refuse_autocommit(connection: Connection) -> None:
    """Raise if a connection that has begun commits each statement by itself.

    Args:
        connection: in a transaction, as far as SQLAlchemy knows.

    Raises:
        InvalidArgument: it has no transactions.
    """
    if _commits_by_itself(connection):
        level = "SERIALIZABLE" if connection.dialect.name == "sqlite" else "READ COMMITTED"
        raise InvalidArgument(
            "this connection is in autocommit: each statement is committed by itself, so no row stays locked and "
            f'nothing is rolled back; use one of engine.execution_options(isolation_level="{level}")'
        )


def _commits_by_itself(connection: Connection) -> bool:
    plain: Any = connection.connection.dbapi_connection
    if getattr(plain, "autocommit", False) is True or getattr(plain, "isolation_level", "") == "autocommit":
        return True
    if connection.dialect.name == "sqlite":
        # None alone says nothing: an engine that sends BEGIN by an event has it too.
        return getattr(plain, "isolation_level", "") is None and not _in_transaction(connection)
    if connection.dialect.name in ("mysql", "mariadb") and hasattr(plain, "get_autocommit"):
        return bool(plain.get_autocommit())
    return False


def _in_transaction(connection: Connection) -> bool:
    return bool(getattr(connection.connection.driver_connection, "in_transaction", False))


PASSING_STATES = {"40001", "40P01"}  # serialization failure, deadlock
PASSING_NUMBERS = {1205, 1213, 1020}  # MySQL and MariaDB: lock wait time-out, deadlock, record has changed
NO_SAVEPOINT = 1305  # it has gone
PASSING_SQLITE = "database is locked"


def passing(error: DBAPIError) -> bool:
    """Tell whether the database undid the transaction for the sake of others, so that a new try may do."""
    plain = error.orig
    state = getattr(plain, "sqlstate", None) or getattr(plain, "pgcode", None)
    args = getattr(plain, "args", ())
    number = args[0] if args and isinstance(args[0], int) else None
    if number == NO_SAVEPOINT and isinstance(error.__context__, DBAPIError):
        return passing(error.__context__)  # with the transaction, and what broke that is why
    return state in PASSING_STATES or number in PASSING_NUMBERS or PASSING_SQLITE in str(plain)


def raise_translated(error: DBAPIError, at_commit: bool = False) -> NoReturn:
    """Raise what `transact` promises for an error of the database.

    Args:
        error: what SQLAlchemy raised.
        at_commit: True if it was the commit itself.

    Raises:
        TryAgain: it may pass.
        UnknownOutcome: no answer to the commit came.
        StoreError: the database can't be asked.
        DBAPIError: as it is: the statement is wrong, or refused.
    """
    if at_commit and error.connection_invalidated:
        raise UnknownOutcome(f"no answer to the commit came: it may have been done, or not: {error.orig}") from error
    if passing(error):
        raise TryAgain(f"the database has undone the transaction: {error.orig}") from error
    if error.connection_invalidated:
        raise StoreError(f"the connection to the database failed, nothing was changed: {error.orig}") from error
    raise error


_KINDS: dict[bool, tuple[type[Any], type[Any], str]] = {
    False: (Engine, sessionmaker, "transact() takes an Engine or a sessionmaker"),
    True: (AsyncEngine, async_sessionmaker, "atransact() takes an AsyncEngine or an async_sessionmaker"),
}


def maker_of(where: object, tasks: bool) -> Callable[[], Any]:
    """Return what makes a session for each try.

    Args:
        where: an engine or a sessionmaker.
        tasks: True for those of asyncio.

    Raises:
        InvalidArgument: it is something else.
    """
    engine, maker, takes = _KINDS[tasks]
    if isinstance(where, engine):
        where = maker(where, expire_on_commit=False)
    if not isinstance(where, maker):
        shown = f"{type(where).__name__} (a session is used up by one try)" if isinstance(where, Session) else where
        raise InvalidArgument(f"{takes} of SQLAlchemy, not {shown}")
    made: Callable[[], Any] = where
    return made


def plain(session: Session | AsyncSession) -> Session:
    """Return the session itself, which an AsyncSession stands before."""
    found: Session = session.sync_session if isinstance(session, AsyncSession) else session
    return found


def called_with(session: Session | AsyncSession, function: Callable[[Session], Any]) -> Any:
    """Call a function that asks the database; what is returned for an AsyncSession is to be awaited."""
    return session.run_sync(function) if isinstance(session, AsyncSession) else function(session)
