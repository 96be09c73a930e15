"""The condition of a guarded UPDATE: each written column still has the value that was read.

It must never take two values for one: a text column may compare without regard to case or to blanks at the end, so
text is compared byte by byte. It may take one value for two (a float that the driver rounds, an encrypted column):
then no row matches, and the row is locked and compared in Python, where `values.same` has the last word.
"""

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from django.db.models import JSONField

_TEXT = re.compile(r"(var)?char\b|character\b|nvarchar|text\b|(tiny|medium|long)text\b|citext\b", re.IGNORECASE)
_POSTGRESQL_EQUAL = re.compile(
    r"bool|smallint|integer|bigint|(small|big)?serial|double precision|real|numeric|decimal|date\b|time|interval|uuid"
    r"|bytea|inet|cidr|macaddr|hstore|\w+range\b",
    re.IGNORECASE,
)
_ARRAY = "[]"

Comparison: TypeAlias = tuple[str, str]
"""A column's side and a value's side; {} stands for the column, or for the value's placeholder."""

PLAIN: Comparison = ("{}", "{}")
_TEXTS: dict[str, Comparison] = {
    "sqlite": ("{} COLLATE BINARY", "{}"),
    "postgresql": ('({})::text COLLATE "C"', "({})::text"),
    "mariadb": ("CAST({} AS BINARY)", "CAST({} AS BINARY)"),
    "mysql": ("CAST({} AS BINARY)", "CAST({} AS BINARY)"),
}
_JSONS: dict[str, Comparison] = {
    "sqlite": ("JSON({})", "JSON({})"),
    # As text, since to jsonb 1 and 1.0 are equal.
    "postgresql": ('({})::jsonb::text COLLATE "C"', "({})::jsonb::text"),
    "mariadb": ("CAST(JSON_COMPACT({}) AS BINARY)", "CAST(JSON_COMPACT({}) AS BINARY)"),
}


def comparison_of(field: Any, connection: Any) -> Comparison | None:
    """Return how a column of a field is compared with a value; None if it is not known to be possible."""
    product = "mariadb" if getattr(connection, "mysql_is_mariadb", False) else connection.vendor
    if isinstance(field, JSONField):
        return _JSONS.get(product)
    kind = field.db_type(connection) or ""
    if _TEXT.match(kind) and not kind.endswith(_ARRAY):
        return _TEXTS.get(product)
    if product == "postgresql":
        return _on_postgresql(kind)
    return PLAIN if product in _TEXTS else None


def _on_postgresql(kind: str) -> Comparison | None:
    element = kind.partition("[")[0]
    if kind.endswith(_ARRAY) and _TEXT.match(element):
        return ('({})::text[] COLLATE "C"', "({})::text[]")
    # Some types (json, xml, point) have no equality, and asking for it fails.
    return PLAIN if _POSTGRESQL_EQUAL.match(element) else None


class Column:
    """One column in one database, and the SQL that compares it, made once.

    Args:
        field: the field of the model.
        comparison: how it is compared.
        sign: what the column must be to the value.
    """

    __slots__ = ("_equal", "_is_null", "_left", "_right", "field")

    def __init__(self, field: Any, comparison: Comparison, sign: str, connection: Any) -> None:
        quote = connection.ops.quote_name
        column = f"{quote(field.model._meta.db_table)}.{quote(field.column)}"
        left, self._right = comparison
        self.field = field
        self._is_null = f"{column} IS NULL"
        self._left = f"{left.format(column)} {sign} "
        simple = not hasattr(field, "get_placeholder") and not hasattr(field, "get_placeholder_sql")
        self._equal = self._left + self._right.format("%s") if simple else None

    def as_sql(self, value: Any, compiler: Any, connection: Any) -> tuple[str, Sequence[Any]]:
        """Return the SQL that compares it with a value of the field in Python, and its parameters."""
        value = self.field.get_db_prep_save(value, connection=connection)
        if value is None:
            return self._is_null, ()
        if self._equal is not None and not hasattr(value, "as_sql"):
            return self._equal, (value,)
        placeholder, params = _placeholder(self.field, value, compiler, connection)
        return self._left + self._right.format(placeholder), params


class StillAsRead:
    """True in SQL while each of some columns is to its value what it shall be."""

    # What a condition of a query set tells of itself.
    conditional = True
    contains_aggregate = False
    contains_over_clause = False

    def __init__(self, conditions: Sequence[tuple[Column, Any]]) -> None:
        self.conditions = conditions

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Return the SQL of all conditions and its parameters."""
        parts: list[str] = []
        params: list[Any] = []
        for column, value in self.conditions:
            sql, values = column.as_sql(value, compiler, connection)
            parts.append(sql)
            params.extend(values)
        return " AND ".join(parts), params


def _placeholder(field: Any, value: Any, compiler: Any, connection: Any) -> tuple[str, Sequence[Any]]:
    if hasattr(value, "as_sql"):
        sql, params = compiler.compile(value)
        return sql, params
    if (with_params := getattr(field, "get_placeholder_sql", None)) is not None:
        sql, params = with_params(value, compiler, connection)
        return sql, params
    return field.get_placeholder(value, compiler, connection), [value]
