"""Connections that rows are written on: which one it is, and that it has transactions at all."""

from typing import Any

from sqlalchemy import Connection, inspect

from interlock.core.errors import InvalidArgument


def connection_of(where: Any, target: Any) -> Connection:
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
