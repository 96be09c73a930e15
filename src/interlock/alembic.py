"""Operations of Alembic that make and drop the table of locks: import this module in a migration.

`op.create_interlock()` makes what the first use makes on PostgreSQL, MySQL and MariaDB; `op.drop_interlock()` drops
it. Both work offline, too (`alembic upgrade --sql`).
"""

from typing import Any

from alembic.operations import MigrateOperation, Operations

from interlock.core.errors import InvalidArgument
from interlock.stores import mysql
from interlock.stores.postgresql import ddl

__all__ = ["CreateInterlock", "DropInterlock"]


class _TableOperation(MigrateOperation):
    """What is done with the table of locks.

    Args:
        table: its name.
        schema: where it is; empty for the first of the search path, or the database, of the connection.
        grace: seconds, as for `interlock.stores.postgresql.ddl.ddl`.
    """

    def __init__(self, table: str = ddl.TABLE, schema: str = "", grace: float = ddl.GRACE) -> None:
        self.table = table
        self.schema = schema
        self.grace = grace


@Operations.register_operation("create_interlock")
class CreateInterlock(_TableOperation):
    """Make the table of locks, and its functions."""

    @classmethod
    def create_interlock(
        cls, operations: Operations, table: str = ddl.TABLE, schema: str = "", grace: float = ddl.GRACE
    ) -> None:
        """Make the table of locks, and its functions, if they are not there.

        Args:
            operations: given by Alembic.
            table: its name: lowercase letters, digits and underscores.
            schema: where it is, on PostgreSQL; empty for the first of the search path.
            grace: seconds without new holders after a crash, on PostgreSQL.

        Raises:
            InvalidArgument: such a name or grace is not possible, or the database is another one.
        """
        operations.invoke(cls(table, schema, grace))


@Operations.register_operation("drop_interlock")
class DropInterlock(_TableOperation):
    """Drop the table of locks, and its functions."""

    @classmethod
    def drop_interlock(cls, operations: Operations, table: str = ddl.TABLE, schema: str = "") -> None:
        """Drop the table of locks, with all locks in it, and its functions.

        Args:
            operations: given by Alembic.
            table, schema: as for `create_interlock`.

        Raises:
            InvalidArgument: such a name is not possible, or the database is another one.
        """
        operations.invoke(cls(table, schema))


@Operations.implementation_for(CreateInterlock)
def _create(operations: Operations, wanted: CreateInterlock) -> None:
    there = _is_postgresql(operations, wanted)
    _execute(operations, ddl.ddl(wanted.table, wanted.schema, wanted.grace) if there else mysql.ddl(wanted.table))


@Operations.implementation_for(DropInterlock)
def _drop(operations: Operations, wanted: DropInterlock) -> None:
    if _is_postgresql(operations, wanted):
        _execute(operations, ddl.undo(wanted.table, wanted.schema))
    else:
        _execute(operations, f"DROP TABLE IF EXISTS {mysql.checked_table(wanted.table)}")


def _is_postgresql(operations: Operations, wanted: Any) -> bool:
    """Tell PostgreSQL from MySQL and MariaDB.

    Raises:
        InvalidArgument: it is none of them, or has no schemas.
    """
    name = operations.get_context().dialect.name
    if name not in ("postgresql", "mysql", "mariadb"):
        raise InvalidArgument(f"{name} needs no table of locks: they have a file of their own there")
    if name != "postgresql" and wanted.schema:
        raise InvalidArgument(f"on {name} the table of locks is in the database of the connection: give no schema")
    return bool(name == "postgresql")


def _execute(operations: Operations, text: str) -> None:
    for statement in ddl.statements(text):  # one by one: asyncpg takes no more
        operations.execute(statement.replace(":", "\\:"))  # else SQLAlchemy takes :name for a parameter
