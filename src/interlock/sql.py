"""Fences in SQL, for SQLAlchemy Core and ORM: stale holders cannot write.

A holder can be stopped (a suspended machine, a long pause) until its lock is lost, and then continue and write. Each
grant has a fence, a number that is higher with each holder. A row keeps the highest fence of its writers, and the
condition is in the same statement that writes.
"""

import hashlib
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Delete,
    MetaData,
    String,
    Table,
    Text,
    Update,
    delete,
    func,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.schema import CreateTable

from interlock.client.base_grant import BaseGrant
from interlock.core.claims import checked_name
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.errors import StaleFence as StaleFence
from interlock.optimistic.sqlalchemy import begin_writing, connection_of

ONCE = Table(
    "interlock_once",
    MetaData(),
    Column("key", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("done", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""The completed steps, by a key of 64 hexadecimal digits, and their names."""


class Fenced:
    """Writes to one table with the fence of a grant; returned by `fenced`.

    Attributes:
        condition: the WHERE condition: no later holder has written the row.
        values: the SET values: the fence column, and the fence.
    """

    def __init__(self, target: Any, column: Any, grant: BaseGrant) -> None:
        self._target = target
        self._column = column
        self._grant = grant
        self.condition: ColumnElement[bool] = or_(column.is_(None), column <= grant.fence)
        self.values: dict[str, int] = {column.key: grant.fence}

    def update(self, *where: ColumnElement[bool]) -> Update:
        """Return an UPDATE that also writes the fence, unless the row has a higher one.

        Args:
            where: the condition of the rows; add the values by `.values(…)`.
        """
        return update(self._target).where(self.condition, *where).values(self.values)

    def delete(self, *where: ColumnElement[bool]) -> Delete:
        """Return a DELETE of rows that no later holder has written.

        Args:
            where: the condition of the rows.
        """
        return delete(self._target).where(self.condition, *where)

    def write(self, connection: Any, *where: ColumnElement[bool], **values: object) -> int:
        """Write all the rows with the grant's fence, or none of them.

        In a session, this locks rows of ORM objects that are flushed later until the end of the transaction, so
        `write(session, Book.id == 7)` without values guards the flush of that object.

        Args:
            connection: a Connection or a Session; the caller commits its transaction.
            where: the condition of the rows.
            values: the values by column name.

        Returns:
            The number of written rows; 0 if there are none.

        Raises:
            LockLost: this process knows that the lock was lost; the database was not asked.
            StaleFence: a later holder has written one of the rows.
            InvalidArgument: no condition was given, the fence itself is among the values, or the connection is in
                autocommit.
        """
        self._grant.check()
        if not where:
            raise InvalidArgument("The condition is missing. Give one, e.g. table.c.id == 7.")
        if self._column.key in values:
            raise InvalidArgument(f"fenced() itself writes {self._column.key}. Omit {self._column.key}.")
        # Otherwise a savepoint of SQLite is a separate transaction.
        begin_writing(connection_of(connection, self._target))
        with connection.begin_nested():  # the writes before a stale row was found are undone
            count: int = connection.execute(self.update(*where).values(**values)).rowcount
            stale = select(self._column).where(*where, self._column > self._grant.fence).limit(1)
            # Locked, because MySQL otherwise shows the row as at the beginning of the transaction.
            later = connection.execute(stale.with_for_update()).scalar()
            if later is not None:
                raise StaleFence(
                    f"{self._column.table} was not written: a holder with fence {later} has written it, and this "
                    f"holder, with fence {self._grant.fence}, has lost lock {self._grant.name!r}. Stop the work.",
                    later,
                )
        return count

    async def awrite(self, connection: Any, *where: ColumnElement[bool], **values: object) -> int:
        """Write rows like `write`, on an AsyncConnection or an AsyncSession."""
        return int(await connection.run_sync(lambda plain: self.write(plain, *where, **values)))


def fenced(table: object, grant: BaseGrant, column: str = "fence") -> Fenced:
    """Return writes that fail or skip rows that a later holder of a lock has written.

    `connection.execute(fenced(books, grant).update(books.c.id == 7).values(name="…"))` writes no row that a later
    holder has written; `fenced(books, grant).write(connection, books.c.id == 7, name="…")` raises then.

    Args:
        table: a Table, or a mapped class.
        grant: the grant of the lock that protects the rows.
        column: the attribute or column that keeps the fence, a BigInteger.

    Raises:
        InvalidArgument: the column is missing, or is too small for fences.
    """
    if not isinstance(getattr(grant, "fence", None), int) or not hasattr(grant, "check"):
        raise InvalidArgument(f"fenced() needs the grant of one lock, not {type(grant).__name__}.")
    # A mapped class may have an attribute named `c`.
    found = getattr(table.c if isinstance(table, Table) else table, column, None)
    if not isinstance(getattr(found, "type", None), BigInteger):
        raise InvalidArgument(
            f"fenced() needs a Table or a mapped class with a BigInteger for the fence. {table!r} has no such "
            f"column {column!r}. Add interlock.sql.fence_column()."
        )
    return Fenced(table, found, grant)


def once(connection: object, name: str) -> bool:
    """Record in the caller's transaction that a step is done; a crash keeps both or none.

    A caller waits for another transaction that has written the record.  The records are in interlock's own table
    `interlock_once`, which the first use creates: in the schema that the connection's `schema_translate_map` gives
    for None, or else in the default schema.

    Args:
        connection: a Connection or a Session; the caller commits its transaction.
        name: the name of the step.

    Returns:
        True if the step was not recorded, so that the caller must do it in this transaction.

    Raises:
        InvalidArgument: the name is invalid, or the connection is in autocommit.
        StoreError: the table is missing and the role must not create it, or the role must not write to it.
    """
    key = hashlib.sha256(checked_name(name).encode()).hexdigest()
    plain = connection_of(connection, ONCE)
    begin_writing(plain)
    schema = plain.schema_for_object(ONCE)
    table = ONCE.to_metadata(MetaData(), schema=schema) if schema else ONCE
    failed: DBAPIError | None = None
    if not inspect(plain).has_table(ONCE.name, schema=schema):
        apart = plain.dialect.name in ("mysql", "mariadb")  # where DDL commits its transaction
        try:
            with plain.engine.begin() if apart else plain.begin_nested() as making:
                table.create(making if isinstance(making, Connection) else plain, checkfirst=True)
        except DBAPIError as error:  # another transaction may have created it
            failed = error
    try:
        with plain.begin_nested():
            plain.execute(ONCE.insert().values(key=key, name=name))
    except IntegrityError:
        return False
    except DBAPIError as error:
        if failed is None and not isinstance(error, ProgrammingError):
            raise  # such as a deadlock, after which the program may repeat its transaction
        making_it = " ".join(str(CreateTable(table).compile(dialect=plain.dialect)).split())
        raise StoreError(
            f"{name!r} was not recorded: {str((failed or error).orig).partition(chr(10))[0]}. As the owner of the "
            f"schema, run {making_it}; and GRANT INSERT ON {table} to this role. If its search_path is empty, "
            "give the schema by execution_options(schema_translate_map={None: 'app'})."
        ) from error
    return True


def fence_column(name: str = "fence") -> Column[int]:
    """Return a fence column, for a Table or a mapped class."""
    return Column(name, BigInteger, nullable=False, default=0, server_default="0")
