"""Operations of Alembic that make and drop the table of locks: import this module in a migration.

`op.create_interlock()` makes what the first use makes on PostgreSQL, MySQL and MariaDB; `op.drop_interlock()` drops
it. Both work offline, too (`alembic upgrade --sql`).
"""

from alembic.operations import Operations

from interlock.core.errors import InvalidArgument
from interlock.stores import mysql
from interlock.stores.postgresql import ddl

__all__ = ["TableOfLocks"]


@Operations.register_operation("create_interlock")
@Operations.register_operation("drop_interlock")
class TableOfLocks:
    """What is done with the table of locks, and its functions."""

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
        there = _is_postgresql(operations, schema)
        _execute(operations, ddl.ddl(table, schema, grace) if there else mysql.ddl(table))

    @classmethod
    def drop_interlock(cls, operations: Operations, table: str = ddl.TABLE, schema: str = "") -> None:
        """Drop the table of locks, with all locks in it, and its functions.

        Args:
            operations: given by Alembic.
            table, schema: as for `create_interlock`.

        Raises:
            InvalidArgument: such a name is not possible, or the database is another one.
        """
        there = _is_postgresql(operations, schema)
        _execute(
            operations, ddl.undo(table, schema) if there else f"DROP TABLE IF EXISTS {mysql.checked_table(table)}"
        )


def _is_postgresql(operations: Operations, schema: str) -> bool:
    """Tell PostgreSQL from MySQL and MariaDB.

    Raises:
        InvalidArgument: it is none of them, or has no schemas.
    """
    name = operations.get_context().dialect.name
    if name not in ("postgresql", "mysql", "mariadb"):
        raise InvalidArgument(f"{name} needs no table of locks: they have a file of their own there")
    if name != "postgresql" and schema:
        raise InvalidArgument(f"on {name} the table of locks is in the database of the connection: give no schema")
    return bool(name == "postgresql")


def _execute(operations: Operations, text: str) -> None:
    for statement in ddl.statements(text):  # one by one: asyncpg takes no more
        operations.execute(statement.replace(":", "\\:"))  # else SQLAlchemy takes :name for a parameter
