"""Rows as they were read, compared with what they are.

A row is compared by its version column if the mapper has one (`version_id_col`), else by all values that were read.
The rows are locked first and compared in Python, as the driver gives them: in a WHERE, collations, floats and JSON
would make other values equal or equal ones different.
"""

from collections.abc import Collection
from copy import deepcopy
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, select
from sqlalchemy.orm import InstanceState, Mapper

IMMUTABLE = (str, bytes, int, float, bool, type(None))
NAN = object()


class Seen(NamedTuple):
    """A row as it was when it was read: its values by column."""

    mapper: Mapper[Any]
    values: dict[Any, Any]


def seen_in(state: InstanceState[Any], names: Collection[str] | None) -> Seen:
    """Return what an object that was just loaded has of its row.

    Args:
        state: of the object.
        names: the attributes that were loaded; None for all that it has.

    Returns:
        The values to compare; copies, as some can be changed in place.
    """
    mapper = state.mapper
    values = {}
    for column in [mapper.version_id_col] if mapper.version_id_col is not None else mapper.columns:
        attribute = mapper.get_property_by_column(column)
        # What with_expression() gives is no column of the row.
        asked = ("query_expression", True) not in (attribute.strategy_key or ())
        if asked and attribute.key in state.dict and (names is None or attribute.key in names):
            values[column] = _kept(state.dict[attribute.key])
    return Seen(mapper, values)


def unchanged(connection: Connection, key: Any, seen: Seen) -> bool:
    """Lock a row and compare it.

    Args:
        connection: of the transaction that locks it.
        key: its identity in the session.
        seen: what was read.

    Returns:
        True if it is there and has the same values.
    """
    columns = list(seen.values)
    # Not `selectable`: that has the tables of subclasses too, by outer joins, which PostgreSQL does not lock.
    query = select(*columns).select_from(seen.mapper.persist_selectable)
    query = query.where(*(column == value for column, value in zip(seen.mapper.primary_key, key[1], strict=True)))
    found = connection.execute(query.with_for_update()).one_or_none()
    return found is not None and all(
        same(column, found[index], seen.values[column]) for index, column in enumerate(columns)
    )


def same(column: Column[Any], now: Any, then: Any) -> bool:
    """Tell whether two values of a column are the same; NaN is the same as NaN here."""
    return bool(column.type.compare_values(_without_nan(now), _without_nan(then)))


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return NAN if isinstance(value, (float, Decimal)) and value != value else value


def _kept(value: Any) -> Any:
    return value if isinstance(value, IMMUTABLE) else deepcopy(value)
