"""Operations of Alembic that make and drop the table of locks: import this module in env.py.

`op.create_interlock()` makes what the first use makes on PostgreSQL, MySQL and MariaDB; `op.drop_interlock()` drops
it. Both work offline, too (`alembic upgrade --sql`).

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
"""Columns of the tables of locks on PostgreSQL, on MySQL, and of the one called ..._alive, under any name."""
PRIORITY = getattr(util, "DispatchPriority", None)  # since Alembic 1.18; before that, the order of registration


def include_object(object: Any, name: str | None, type_: str, reflected: bool, compare_to: object) -> bool:
    """Return False for a table of interlock that is not in the program's metadata.

    Args:
        object, name, type_, reflected, compare_to: as Alembic gives them to `context.configure(include_object=…)`.
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
        _execute(
            operations,
            ddl.ddl(table, schema, grace) if _is_postgresql(operations, schema) else mysql.ddl(table),
        )

    @classmethod
    def drop_interlock(cls, operations: Operations, table: str = ddl.TABLE, schema: str = "") -> None:
        """Drop the table of locks, with all locks in it, and its functions.

        Args:
            operations: given by Alembic.
            table, schema: as for `create_interlock`.

        Raises:
            InvalidArgument: such a name is not possible, or the database is another one.
        """
        _execute(
            operations,
            ddl.undo(table, schema)
            if _is_postgresql(operations, schema)
            else f"DROP TABLE IF EXISTS {mysql.checked_table(table)}",
        )


def _is_postgresql(operations: Operations, schema: str) -> bool:
    """Tell PostgreSQL from MySQL and MariaDB.

    Raises:
        InvalidArgument: it is none of them, or has no schemas.
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
    for statement in ddl.statements(text):  # one by one: asyncpg takes no more
        operations.execute(statement.replace(":", "\\:"))  # otherwise SQLAlchemy takes :name for a parameter
