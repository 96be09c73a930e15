"""What a column makes of a value: a decimal is rounded to its places, a text padded, a NaN becomes NULL.

A guard must remember what the database holds, not what the program gave. Where a value may not be held as it is, it
is read back in the transaction that writes it; all others need no query.
"""

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from django.db.models import DecimalField, JSONField

Adapts = Callable[[Any], bool]
"""Tells whether a column may hold a value otherwise than it was given."""

_DIGITS_OF_A_DOUBLE = 15
_HELD_AS_GIVEN = re.compile(
    r"bool|tinyint|smallint|integer|bigint|int\b|(small|big)?serial|varchar|character varying"
    r"|(tiny|medium|long)?text\b|citext\b|uuid|(tiny|medium|long)?blob|bytea|date\b|datetime\(6\)|time\(6\)|timestamp\(6\)|inet|json\b|numrange\b|tstzrange\b"
    r"|hstore",
    re.IGNORECASE,
)
_HELD_BY = {
    "postgresql": re.compile(r"(timestamp|time)( with(out)? time zone)?$|interval$", re.IGNORECASE),
    "sqlite": re.compile(r"datetime|time\b|char", re.IGNORECASE),
    "mysql": re.compile(r"$^"),
}
_DOUBLE = re.compile(r"double|real", re.IGNORECASE)
_WITH_EXPONENT = re.compile(r"\d[eE][+-]?\d")


def adapts(field: Any, connection: Any) -> Adapts | None:
    """Return what tells whether the column of a field may change a value; None if it never does."""
    kind, vendor = field.db_type(connection) or "", connection.vendor
    if kind.endswith("]"):
        return None if _HELD_AS_GIVEN.match(kind.partition("[")[0]) else _always
    if isinstance(field, DecimalField):
        return _rounds(field.decimal_places, _DIGITS_OF_A_DOUBLE if vendor == "sqlite" else None)
    if isinstance(field, JSONField):
        return _writes_exponents(field) if vendor == "postgresql" else None
    if _HELD_AS_GIVEN.match(kind) or (vendor in _HELD_BY and _HELD_BY[vendor].match(kind)):
        return None
    if _DOUBLE.match(kind) and not (vendor == "postgresql" and kind.lower().startswith("real")):
        return _is_no_number
    if vendor == "mysql" and kind.lower().startswith("char"):
        return _ends_blank
    return _always


def _always(value: Any) -> bool:
    return value is not None


def _rounds(places: int | None, digits: int | None) -> Adapts:
    def rounds(value: Any) -> bool:
        if value is None or type(value) is int:
            return False
        if type(value) is not Decimal or not value.is_finite() or places is None:
            return True
        _, found, exponent = value.as_tuple()
        return -int(exponent) > places or (digits is not None and len(found) > digits)

    return rounds


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _ends_blank(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(" ")


def _writes_exponents(field: JSONField) -> Adapts:
    def writes_exponents(value: Any) -> bool:
        # To jsonb 1e22 is a number of 23 digits, which comes back as an integer.
        return bool(value) and _WITH_EXPONENT.search(str(field.get_prep_value(value) or value)) is not None

    return writes_exponents


def held_values(model: Any, using: str, pk: Any, fields: Iterable[Any]) -> dict[str, Any]:
    """Return what a row holds; to be asked in the transaction that has written it."""
    names = [field.attname for field in fields]
    found = model._base_manager.using(using).filter(pk=pk).values_list(*names).first()
    return dict(zip(names, found, strict=True)) if found is not None else {}
