"""Columns: how a guarded UPDATE asks whether one still has the value that was read, and what it makes of a value.

The question must never take two values for one: a text column may compare without regard to case or to blanks at the
end, so text is compared byte by byte. It may take one value for two (a float that the driver rounds, an encrypted
column): then no row matches, and the row is locked and compared in Python, where `values.same` has the last word.

A guard must remember what the database holds, not what the program gave: a decimal is rounded to its places, a text
padded, a NaN becomes NULL. Where a value may not be held as it is, it is read back in the transaction that writes it.
"""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DecimalField, JSONField
from django.db.models.sql.compiler import SQLCompiler

from interlock.django.guarded.values import IMMUTABLE, AnyField, is_expression

Comparison: TypeAlias = tuple[str, str]
"""A column's side and a value's side; {} stands for the column, or for the value's placeholder."""

PLAIN: Comparison = ("{}", "{}")
_TEXT = re.compile(r"(var)?char\b|character\b|nvarchar|text\b|(tiny|medium|long)text\b|citext\b", re.IGNORECASE)
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
_TEXT_ARRAY: Comparison = ('({})::text[] COLLATE "C"', "({})::text[]")
_HAS_EQUALITY = re.compile(
    r"bool|smallint|integer|bigint|(small|big)?serial|double precision|real|numeric|decimal|date\b|time|interval|uuid"
    r"|bytea|inet|cidr|macaddr|hstore|\w+range\b",
    re.IGNORECASE,
)
"""Types of PostgreSQL. Some (json, xml, point) have no equality, and asking for it fails."""

_DIGITS_OF_A_DOUBLE = 15
_HELD_AS_GIVEN = (
    r"bool|tinyint|smallint|integer|bigint|int\b|(small|big)?serial|varchar|character varying"
    r"|(tiny|medium|long)?text\b|citext\b|uuid|(tiny|medium|long)?blob|bytea|date\b|datetime\(6\)|time\(6\)|timestamp\(6\)|inet|json\b"
    r"|numrange\b|tstzrange\b|hstore"
)
_HELD_BY = {
    vendor: re.compile(f"{_HELD_AS_GIVEN}{more}", re.IGNORECASE)
    for vendor, more in (
        ("postgresql", r"|(timestamp|time)( with(out)? time zone)?$|interval$"),
        ("sqlite", r"|datetime|time\b|char"),
        ("mysql", ""),
    )
}
_WITH_EXPONENT = re.compile(r"\d[eE][+-]?\d")


def comparison_of(field: AnyField, connection: BaseDatabaseWrapper) -> Comparison | None:
    """Return how a column of a field is compared with a value; None if it is not known to be possible."""
    product = "mariadb" if getattr(connection, "mysql_is_mariadb", False) else connection.vendor
    if isinstance(field, JSONField):
        return _JSONS.get(product)
    kind = field.db_type(connection) or ""
    if _TEXT.match(kind):
        return _TEXT_ARRAY if kind.endswith("]") else _TEXTS.get(product)
    if product == "postgresql":
        return PLAIN if _HAS_EQUALITY.match(kind) else None
    return PLAIN if product in _TEXTS else None


class Column:
    """A column in one database, and the SQL that compares it, made once.

    Attributes:
        comparable: whether the database can be asked.
        may_adapt: whether there are values that it holds otherwise than they are given, which somebody must know.

    Args:
        field: the field of the model.
        sign: what the column must be to the value.
        comparison: how it is compared; None if it is not known to be possible.
        settles: False if nobody need know what it makes of a value.
    """

    __slots__ = ("_equal", "_kind", "_null", "_right", "_usual", "_vendor", "comparable", "field", "may_adapt")

    def __init__(
        self,
        field: Any,
        connection: BaseDatabaseWrapper,
        sign: str,
        comparison: Comparison | None,
        settles: bool,
    ) -> None:
        quote = connection.ops.quote_name
        column = f"{quote(field.model._meta.db_table)}.{quote(field.column)}"
        left, self._right = comparison or PLAIN
        self.field = field
        self.comparable = comparison is not None
        self._null = f"{column} IS NULL"
        self._equal = f"{left.format(column)} {sign} "
        has_own = hasattr(field, "get_placeholder") or hasattr(field, "get_placeholder_sql")
        self._usual = None if has_own else self._equal + self._right.format("%s")
        self._vendor: str = connection.vendor
        self._kind: str = field.db_type(connection) or ""
        as_given = _HELD_BY.get(self._vendor)
        self.may_adapt: bool = settles and (
            self._vendor == "postgresql"
            if isinstance(field, JSONField)
            else isinstance(field, DecimalField) or as_given is None or not as_given.match(self._kind)
        )

    def as_sql(self, value: Any, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, Sequence[Any]]:
        """Return the SQL that compares it with a value of the field in Python, and its parameters."""
        field = self.field
        value = field.get_db_prep_save(value, connection=connection)
        if value is None:
            return self._null, ()
        if self._usual is not None and type(value) in IMMUTABLE:
            return self._usual, (value,)
        placeholder, params = "%s", (value,)
        if hasattr(value, "as_sql"):
            placeholder, params = compiler.compile(value)
        elif hasattr(field, "get_placeholder_sql"):
            placeholder, params = field.get_placeholder_sql(value, compiler, connection)
        elif hasattr(field, "get_placeholder"):
            placeholder = field.get_placeholder(value, compiler, connection)
        return self._equal + self._right.format(placeholder), params

    def adapts(self, value: object) -> bool:
        """True if it may hold a value otherwise than it is given."""
        field, kind, vendor = self.field, self._kind, self._vendor
        if not self.may_adapt or value is None or is_expression(value):
            return False
        if isinstance(field, DecimalField):
            return not _fits(value, field.decimal_places, vendor)
        if isinstance(field, JSONField):
            # To jsonb 1e22 is a number of 23 digits, which comes back as an integer.
            return _WITH_EXPONENT.search(str(field.get_prep_value(value) or value)) is not None
        if kind.lower().startswith(("double", "real")) and (vendor != "postgresql" or kind.startswith("double")):
            return isinstance(value, float) and not math.isfinite(value)
        if vendor == "mysql" and kind.lower().startswith("char"):
            return isinstance(value, str) and value.endswith(" ")
        return True


def _fits(value: object, places: int | None, vendor: str) -> bool:
    """True if a column of decimals holds a number as it is."""
    if type(value) is not Decimal or not value.is_finite() or places is None:
        return type(value) is int
    _, digits, exponent = value.as_tuple()
    return -int(exponent) <= places and (vendor != "sqlite" or len(digits) <= _DIGITS_OF_A_DOUBLE)


class StillAsRead:
    """True in SQL while each of some columns is to its value what it shall be."""

    # What a condition of a query set tells of itself.
    conditional = True
    contains_aggregate = False
    contains_over_clause = False

    def __init__(self, conditions: Sequence[tuple[Column, object]]) -> None:
        self.conditions = conditions

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
        """Return the SQL of all conditions and its parameters."""
        parts = [column.as_sql(value, compiler, connection) for column, value in self.conditions]
        return " AND ".join(sql for sql, _ in parts), [each for _, params in parts for each in params]
