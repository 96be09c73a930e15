"""Optimistic transactions on rows, with SQLAlchemy's ORM."""

from collections.abc import Callable, Collection
from copy import deepcopy
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn, cast

from sqlalchemy import Column, Connection, Engine, event, inspect, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, Session, SessionTransaction, sessionmaker

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.optimistic.tries import TryAgain


def connection_of(where: Any, target: object) -> Connection:
    """Return the connection for writes to a Table or a mapped class.

    Args:
        where: a Connection, or a Session, which may have another engine for each class.
        target: the Table, the mapped class or its mapper.

    Returns:
        The connection, in the transaction of the session.
    """
    if isinstance(where, Connection):
        return where
    found: object = inspect(target)
    mapper = getattr(found, "mapper", None)
    return cast(Connection, where.connection(bind_arguments={"mapper": mapper} if mapper else {"clause": found}))


def begin_writing(connection: Connection) -> None:
    """Take the lock of all writers on SQLite, which has no row locks.

    Args:
        connection: of the transaction that will write.

    Raises:
        InvalidArgument: the connection commits each statement automatically.
    """
    if connection.get_transaction() is None:
        connection.begin()
    refuse_autocommit(connection)
    if connection.dialect.name == "sqlite" and not _in_transaction(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def refuse_autocommit(connection: Connection) -> None:
    """Raise if a connection in a transaction commits each statement automatically.

    Args:
        connection: in a transaction, as far as SQLAlchemy knows.

    Raises:
        InvalidArgument: the connection has no transactions.
    """
    if _commits_by_itself(connection):
        level = "SERIALIZABLE" if connection.dialect.name == "sqlite" else "READ COMMITTED"
        raise InvalidArgument(
            "This connection is in autocommit: each statement commits separately, so no row stays locked and nothing "
            f'rolls back. Use a connection of engine.execution_options(isolation_level="{level}").'
        )


def _commits_by_itself(connection: Connection) -> bool:
    plain: Any = connection.connection.dbapi_connection
    if getattr(plain, "autocommit", False) is True or getattr(plain, "isolation_level", "") == "autocommit":
        return True
    if connection.dialect.name == "sqlite":
        # None alone means nothing: an engine that sends BEGIN by an event has it too.
        return getattr(plain, "isolation_level", "") is None and not _in_transaction(connection)
    is_mysql = connection.dialect.name in ("mysql", "mariadb") and hasattr(plain, "get_autocommit")
    return is_mysql and bool(plain.get_autocommit())


def _in_transaction(connection: Connection) -> bool:
    return bool(getattr(connection.connection.driver_connection, "in_transaction", False))


PASSING_STATES = {"40001", "40P01"}  # serialization failure, deadlock
PASSING_NUMBERS = {1205, 1213, 1020}  # MySQL and MariaDB: lock wait time-out, deadlock, record has changed
NO_SAVEPOINT = 1305  # it no longer exists
PASSING_SQLITE = "database is locked"


def passing(error: DBAPIError) -> bool:
    """Return True if the database rolled back in favour of others, so a retry may succeed."""
    plain = error.orig
    state = getattr(plain, "sqlstate", None) or getattr(plain, "pgcode", None)
    args = getattr(plain, "args", ())
    number = args[0] if args and isinstance(args[0], int) else None
    if number == NO_SAVEPOINT and isinstance(error.__context__, DBAPIError):
        return passing(error.__context__)  # with the transaction, and its cause is the context
    return state in PASSING_STATES or number in PASSING_NUMBERS or PASSING_SQLITE in str(plain)


def raise_translated(error: DBAPIError, at_commit: bool = False) -> NoReturn:
    """Raise the error that `transact` documents for an error of the database.

    Args:
        error: the error of SQLAlchemy.
        at_commit: True if the commit failed.

    Raises:
        TryAgain: a retry may succeed.
        UnknownOutcome: no reply to the commit came.
        StoreError: the database cannot be asked.
        DBAPIError: unchanged: the statement is wrong, or refused.
    """
    if at_commit and error.connection_invalidated:
        raise UnknownOutcome(f"No reply to the commit came, so its outcome is unknown: {error.orig}") from error
    if passing(error):
        raise TryAgain(f"The database rolled the transaction back: {error.orig}") from error
    if error.connection_invalidated:
        raise StoreError(f"The connection to the database failed. Nothing was changed: {error.orig}") from error
    raise error


_KINDS = {
    False: (Engine, sessionmaker, "transact() needs an Engine or a sessionmaker"),
    True: (AsyncEngine, async_sessionmaker, "atransact() needs an AsyncEngine or an async_sessionmaker"),
}


def maker_of(where: object, tasks: bool) -> Callable[[], Any]:
    """Return the factory of a session for each try.

    Args:
        where: an engine or a sessionmaker.
        tasks: True for an async factory.

    Raises:
        InvalidArgument: another type.
    """
    engine, maker, takes = _KINDS[tasks]
    if isinstance(where, engine):
        where = maker(where, expire_on_commit=False)
    if not isinstance(where, maker):
        shown = f"{type(where).__name__} (a session serves one try only)" if isinstance(where, Session) else where
        raise InvalidArgument(f"{takes} of SQLAlchemy, not {shown}.")
    return cast(Callable[[], Any], where)


def called_with(session: Session | AsyncSession, function: Callable[[Session], Any]) -> Any:
    """Call a function that queries the database; for an AsyncSession, await the result."""
    return session.run_sync(function) if isinstance(session, AsyncSession) else function(session)


NAN = object()


class RowRead(NamedTuple):
    """A row as it was read: its values by column."""

    mapper: Mapper[object]
    values: dict[Any, Any]


def seen_in(state: InstanceState[object], names: Collection[str] | None) -> RowRead:
    """Return the loaded part of an object's row.

    Args:
        state: the state of the object.
        names: the loaded attributes; None for all.

    Returns:
        The values to compare, as copies, because some are mutable.
    """
    mapper = state.mapper
    values = {}
    for column in [mapper.version_id_col] if mapper.version_id_col is not None else mapper.columns:
        attribute = mapper.get_property_by_column(column)
        # The value of with_expression() is not a column of the row.
        asked = ("query_expression", True) not in (attribute.strategy_key or ())
        if asked and attribute.key in state.dict and (names is None or attribute.key in names):
            values[column] = deepcopy(state.dict[attribute.key])
    return RowRead(mapper, values)


def unchanged(connection: Connection, key: tuple[type, tuple[object, ...], object], seen: RowRead) -> bool:
    """Lock a row and compare it.

    Args:
        connection: the connection of the transaction that locks the row.
        key: its identity in the session.
        seen: the values that were read.

    Returns:
        True if the row exists with the same values.
    """
    columns = list(seen.values)
    # Not `selectable`, whose outer joins include the tables of subclasses, which PostgreSQL does not lock.
    query = select(*columns).select_from(seen.mapper.persist_selectable)
    query = query.where(*(column == value for column, value in zip(seen.mapper.primary_key, key[1], strict=True)))
    found = connection.execute(query.with_for_update()).one_or_none()
    return found is not None and all(
        same(column, found[index], seen.values[column]) for index, column in enumerate(columns)
    )


def same(column: Column[object], now: object, then: object) -> bool:
    """Return True if two values of a column are equal; NaN equals NaN here."""
    return bool(column.type.compare_values(_without_nan(now), _without_nan(then)))


def _without_nan(value: object) -> object:
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return NAN if isinstance(value, (float, Decimal)) and value != value else value


INFO = "interlock.reads"


class RowChanged(TryAgain):
    """Another transaction has changed or deleted a row that was read."""


class LockedRow(NamedTuple):
    """A compared row, locked until the end of the transaction or savepoint."""

    transaction: SessionTransaction | None
    key: object
    seen: RowRead


class Reads:
    """The rows that one session has loaded, recorded by the session's events.

    All rows that were read are locked and compared before this session's first write, because afterwards its own
    changes (cascades, triggers, statements on many rows) look like those of others. Rows that are read later are
    compared too, before the next write or at the end.

    Args:
        session: the session of one try.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[Any, RowRead] = {}  # not compared yet
        self._held: list[LockedRow] = []
        self._inserted: dict[object, SessionTransaction | None] = {}
        self._known: dict[Any, None] = {}
        self._connections: list[Connection] = []
        self._flushing = False
        self._loaded_by_flush: list[object] = []
        session.info[INFO] = self
        # Sessions have no event for attributes that are loaded later into an existing object.
        if not event.contains(Mapper, "refresh", _refreshed):
            event.listen(Mapper, "refresh", _refreshed, raw=True)
        for name, listener in {
            "loaded_as_persistent": self._loaded,
            "pending_to_persistent": self._has_inserted,
            "before_flush": self._before_flush,
            "after_flush_postexec": self._after_flush,
            "do_orm_execute": self._before_statement,
            "after_begin": self._begun,
            "after_transaction_create": self._created,
            "after_commit": self._committed,
            "after_transaction_end": self._ended,
        }.items():
            event.listen(session, name, listener)

    @property
    def keys(self) -> list[str]:
        """The rows that were read, for messages."""
        return [_shown(key) for key in self._known]

    def verify(self) -> None:
        """Lock all rows that were read, and compare them.

        Raises:
            RowChanged: another transaction has changed one of them.
        """
        # In one order for all, so that two verifying transactions do not deadlock.
        for key in sorted(self._open, key=lambda key: (key[0].__name__, repr(key[1]))):
            seen = self._open[key]
            connection = connection_of(self._session, seen.mapper)
            begin_writing(connection)
            if not unchanged(connection, key, seen):
                raise RowChanged(f"Another transaction changed {_shown(key)}.")
            # From now on the row is locked, and only this transaction changes it.
            self._held.append(LockedRow(_innermost(self._session), key, self._open.pop(key)))

    def _loaded(self, session: Session, instance: object) -> None:
        state = inspect(instance)
        if state.key not in self._inserted:
            self._known[state.key] = None
            self._note(state, None)

    def _note(self, state: InstanceState[object], names: Collection[str] | None) -> None:
        if self._flushing:
            self._loaded_by_flush.append(state.obj())
            return
        mapper, values = seen_in(state, names)
        if values:
            # The first values count, because the function may have computed with them.
            noted = self._open.setdefault(state.key, RowRead(mapper, {})).values
            noted.update({column: value for column, value in values.items() if column not in noted})

    def _has_inserted(self, session: Session, instance: object) -> None:
        self._inserted[inspect(instance).key] = _innermost(session)

    def _before_flush(self, *_: Any) -> None:
        self.verify()

    def _after_flush(self, session: Session, *_: object) -> None:
        # A flush may also write what it loads, such as the children of a deleted row: only now they are as they stay.
        self._flushing = False  # its transaction ends a little later
        loaded, self._loaded_by_flush = self._loaded_by_flush, []
        for instance in loaded:
            if instance in session:
                self._note(inspect(instance), None)

    def _before_statement(self, state: ORMExecuteState) -> None:
        if not state.is_select:
            self.verify()

    def _begun(self, session: Session, transaction: SessionTransaction, connection: Connection) -> None:
        refuse_autocommit(connection)
        if transaction.parent is None:
            self._connections.append(connection)
            if session.in_nested_transaction():
                self._before_savepoint()

    def _created(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.nested:
            self._before_savepoint()
        elif transaction.parent is not None:
            self._flushing = True

    def _before_savepoint(self) -> None:
        for connection in self._connections:
            begin_writing(connection)  # otherwise a savepoint of SQLite is a separate transaction

    def _committed(self, session: Session) -> None:
        over = _innermost(session)
        outer = None if over is None else over.parent
        if outer is None:  # all rows: the comparison was true, and stays true
            self._held, self._inserted = [], {}
            return
        self._held = [each._replace(transaction=outer) if each.transaction is over else each for each in self._held]
        self._inserted = {key: outer if each is over else each for key, each in self._inserted.items()}

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self._connections.clear()
        elif not transaction.nested:
            self._flushing = False
            return
        # Not committed, so others can change the rows again: compare them again with the first values.
        free = [each for each in self._held if each.transaction is transaction]
        self._held = [each for each in self._held if each.transaction is not transaction]
        for _, key, seen in reversed(free):
            self._open.setdefault(key, RowRead(seen.mapper, {})).values.update(seen.values)
        self._inserted = {key: each for key, each in self._inserted.items() if each is not transaction}


def _refreshed(state: InstanceState[object], context: object, names: Collection[str] | None) -> None:
    """Note attributes that were loaded later, such as a deferred column."""
    session = state.session
    reads = None if session is None else session.info.get(INFO)
    if reads is not None and state.key in reads._known:
        reads._note(state, names)


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _shown(key: tuple[type, tuple[object, ...], object]) -> str:
    return f"{key[0].__name__} {key[1]!r}"
