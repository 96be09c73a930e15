"""Alembic operations that create and drop the table of locks; import it in env.py.

`op.create_interlock()` creates the table like the first use on PostgreSQL, MySQL and MariaDB; `op.drop_interlock()`
drops the table. Both also work offline (`alembic upgrade --sql`).

The metadata of a program does not contain the tables of interlock, so `alembic revision --autogenerate` would drop
these tables. The import of this module prevents that. `include_object` also keeps Alembic from comparing the tables.
"""

from typing import Any

from alembic import util
from alembic.autogenerate import comparators
from alembic.operations import Operations
from alembic.operations.ops import DropTableOp, UpgradeOps
from sqlalchemy import Table

from interlock.core.errors import InvalidArgument
from interlock.stores import mysql
from interlock.stores.postgresql import ddl

__all__ = ["TableOfLocks", "include_object"]

NAMES = ("interlock_once", ddl.TABLE, f"{ddl.TABLE}_alive")
COLUMNS = ({"key", "number", "top", "held"}, {"k", "line", "version", "kept"}, {"open_from"})
"""Columns of the tables of locks on PostgreSQL and MySQL, and of ..._alive, by any name."""
PRIORITY = getattr(util, "DispatchPriority", None)  # since Alembic 1.18; before that, the order of registration


def include_object(object: Any, name: str | None, type_: str, reflected: bool, compare_to: object) -> bool:
    """Return False for a table of interlock that is not in the program's metadata.

    Args:
        object, name, type_, reflected, compare_to: the arguments of Alembic's `include_object`.
    """
    return not (type_ == "table" and reflected and compare_to is None and _is_ours(object))


def _is_ours(table: Table) -> bool:
    has = set(table.columns.keys())
    return table.name in NAMES or any(has >= each for each in COLUMNS[:2]) or has == COLUMNS[2]


@comparators.dispatch_for("schema", **({} if PRIORITY is None else {"priority": PRIORITY.LAST}))
def _keep_ours(context: object, upgrade: UpgradeOps, schemas: object) -> None:
    """Remove the operations from a generated revision that drop a table of interlock or its indexes."""
    drops = [each for each in upgrade.ops if isinstance(each, DropTableOp) and _is_ours(each.to_table())]
    ours = {(each.schema, each.table_name) for each in drops}
    upgrade.ops[:] = [
        each for each in upgrade.ops if (getattr(each, "schema", None), getattr(each, "table_name", None)) not in ours
    ]


@Operations.register_operation("create_interlock")
@Operations.register_operation("drop_interlock")
class TableOfLocks:
    """The operations on the table of locks and its functions."""

    @classmethod
    def create_interlock(
        cls, operations: Operations, table: str = ddl.TABLE, schema: str = "", grace: float = ddl.GRACE
    ) -> None:
        """Create the table of locks and its functions, if they do not exist.

        Args:
            operations: the argument of Alembic.
            table: the table's name: lowercase letters, digits and underscores.
            schema: its schema, on PostgreSQL; empty for the first of the search path.
            grace: seconds without new holders after a crash, on PostgreSQL.

        Raises:
            InvalidArgument: the name or grace is invalid, or the kind of database is not supported.
        """
        _execute(
            operations,
            ddl.ddl(table, schema, grace) if _is_postgresql(operations, schema) else mysql.ddl(table),
        )

    @classmethod
    def drop_interlock(cls, operations: Operations, table: str = ddl.TABLE, schema: str = "") -> None:
        """Drop the table of locks, with all locks in it, and its functions.

        Args:
            operations: the argument of Alembic.
            table, schema: as for `create_interlock`.

        Raises:
            InvalidArgument: the name is invalid, or the kind of database is not supported.
        """
        _execute(
            operations,
            ddl.undo(table, schema)
            if _is_postgresql(operations, schema)
            else f"DROP TABLE IF EXISTS {mysql.checked_table(table)}",
        )


def _is_postgresql(operations: Operations, schema: str) -> bool:
    """Return True for PostgreSQL, False for MySQL and MariaDB.

    Raises:
        InvalidArgument: another database, or one without schemas.
    """
    name = operations.get_context().dialect.name
    if name not in ("postgresql", "mysql", "mariadb"):
        raise InvalidArgument(
            f"{name} needs no table of locks, because its locks have their own file. Remove this migration."
        )
    if name != "postgresql" and schema:
        raise InvalidArgument(f"On {name} the table of locks is in the connection's database. Omit schema.")
    return bool(name == "postgresql")


def _execute(operations: Operations, text: str) -> None:
    for statement in ddl.statements(text):  # one by one, because asyncpg accepts only one
        operations.execute(statement.replace(":", "\\:"))  # otherwise SQLAlchemy would treat :name as a parameter
