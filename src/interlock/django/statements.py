"""SQL that Django's ORM writes once, to be run often on a connection of our own.

A `Given` stands for a value that is known only when the statement is run.  Compiled statements are kept, since making
SQL of a query set takes longer than many a database needs to answer it.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from django.db import NotSupportedError, models
from django.db.models import sql
from django.db.models.expressions import Expression

MICROSECONDS = 1_000_000

NOW = {
    "postgresql": "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))",  # the session is in UTC: see `pool`
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000",
}
BEGAN = {
    "postgresql": "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "sqlite": NOW["sqlite"],
}
"""A moment that is not later than what the statement sees; in SQLite a statement that writes stands alone."""


T = TypeVar("T")
CURSOR = "interlock_cursor"


class DatabaseMoment(Expression):
    """A moment by the database's clock, in microseconds since the epoch.

    Args:
        words: the SQL for each kind of database.
    """

    def __init__(self, words: dict[str, str]) -> None:
        super().__init__(output_field=models.BigIntegerField())
        self._words = words

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """Return the SQL."""
        words = self._words.get(connection.vendor)
        if words is None:
            raise NotSupportedError(f"interlock does not know how to ask {connection.vendor} for the time")
        return words, []


class Mark(NamedTuple):
    """The place of a value in the parameters of a statement."""

    name: str


class Given(Expression):
    """A value that is given when the statement is run.

    Args:
        name: by which it is given.
        field: of the model, whose type it has.
    """

    def __init__(self, name: str, field: "models.Field[Any, Any]") -> None:
        super().__init__(output_field=field)
        self._name = name

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """Return a placeholder and the mark."""
        return "%s", [Mark(self._name)]

    def get_group_by_cols(self, *_: Any, **__: Any) -> list[Any]:
        """It is the same for all rows."""
        return []


class Statement(NamedTuple):
    """SQL with marks among its parameters."""

    words: str
    parameters: tuple[Any, ...]

    def run(self, connection: Any, take: Callable[[Any], T], **given: Any) -> T:
        """Run it; return what `take` makes of the cursor."""
        parameters = [given[each.name] if type(each) is Mark else each for each in self.parameters]
        cursor = getattr(connection, CURSOR, None)
        if cursor is None:
            with connection.cursor() as cursor:
                cursor.execute(self.words, parameters)
                return take(cursor)
        with connection.wrap_database_errors:
            cursor.execute(self.words, parameters)
            return take(cursor)

    def count(self, connection: Any, **given: Any) -> int:
        """Run it; return how many rows it wrote."""
        return self.run(connection, _rowcount, **given)

    def rows(self, connection: Any, **given: Any) -> list[Any]:
        """Run it; return what it selects."""
        return self.run(connection, _all_rows, **given)


def _rowcount(cursor: Any) -> int:
    count: int = cursor.rowcount
    return count


def _all_rows(cursor: Any) -> list[Any]:
    return list(cursor.fetchall())


def keep_cursor(connection: Any) -> None:
    """Keep a cursor of the driver with a connection of our own, for all of its statements.

    Django makes a new one for each statement, in several layers, which takes as long as the statement.  With other
    databases the layers translate statements and errors, and are left alone.
    """
    if connection.vendor == "postgresql":
        setattr(connection, CURSOR, connection.connection.cursor())


def compiled(query: Any, connection: Any) -> Statement:
    """Return a query as a statement for one kind of database."""
    made = query.get_compiler(connection=connection).as_sql()
    if isinstance(query, sql.InsertQuery):
        made = made[0]
    words, parameters = made
    return Statement(words, tuple(parameters))


def insert(instance: models.Model) -> Any:
    """Return the query that inserts one instance, whose values may be expressions."""
    query = sql.InsertQuery(type(instance))
    query.insert_values([each for each in instance._meta.local_concrete_fields if not each.primary_key], [instance])
    return query


def update(rows: models.QuerySet[Any], **values: Any) -> Any:
    """Return the query that updates rows."""
    query: Any = rows.order_by().query.chain(sql.UpdateQuery)
    query.add_update_values(values)
    return query


def delete(rows: models.QuerySet[Any]) -> Any:
    """Return the query that deletes rows, without a look at what refers to them."""
    return rows.order_by().query.chain(sql.DeleteQuery)


def select(rows: models.QuerySet[Any], columns: Iterable[Any]) -> Any:
    """Return the query that selects columns or expressions."""
    return rows.values_list(*columns).query
