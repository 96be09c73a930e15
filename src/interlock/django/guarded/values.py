"""Values of fields: immutable copies of them, and comparison as in the database."""

import json
import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, NamedTuple, Never, TypeAlias
from uuid import UUID

from django.db import models
from django.db.models import FileField, JSONField
from django.utils import timezone

_SCALARS = (NoneType, bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, UUID)
IMMUTABLE = frozenset(_SCALARS)
_A_MINUTE = timedelta(minutes=1)
AnyField: TypeAlias = "models.Field[Never, object]"
"""Any field of a model."""


class Frozen(bytes):
    """The pickle of a mutable value.

    Pickling is several times as fast as a deep copy, and the garbage collector need not traverse the result; rows are
    read much more often than they are saved.
    """

    __slots__ = ()


class Adapted(NamedTuple):
    """A value that the column stores differently from the one given.

    Attributes:
        given: the value that the program has saved, on which its next change is based; frozen.
        held: the value in the row; frozen.
    """

    given: object
    held: object


def is_expression(value: object) -> bool:
    """Return True if the database computes the value, as for F()."""
    return type(value) not in IMMUTABLE and hasattr(value, "resolve_expression")


def reads_clock(value: object) -> bool:
    """Return True if a value is the current time to within a minute: a datetime, a date, or seconds since 1970."""
    now = datetime.now(UTC)
    if isinstance(value, int | float):
        return abs(value - now.timestamp()) < _A_MINUTE.total_seconds()
    here = [now.astimezone(zone).replace(tzinfo=None) for zone in (UTC, None, timezone.get_current_timezone())]
    if isinstance(value, datetime):
        return any(abs(value - moment) < _A_MINUTE for moment in (here if value.tzinfo is None else [now]))
    return isinstance(value, date) and value in [moment.date() for moment in here]


def freeze(value: object) -> Any:
    """Return an immutable copy of a value."""
    if isinstance(value, _SCALARS) or is_expression(value):
        return value
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    try:
        return Frozen(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    except Exception:
        return value  # if it can't be pickled, changes in place are not detected


def thaw(kept: object) -> Any:
    """Return the value of a frozen one, as the program gave it."""
    if type(kept) is Adapted:
        kept = kept.given
    return pickle.loads(kept) if type(kept) is Frozen else kept


def thaw_held(kept: object) -> Any:
    """Return the value of a frozen one, as the row stores it."""
    return thaw(kept.held if type(kept) is Adapted else kept)


def kept_of(field: AnyField, value: object) -> Any:
    """Freeze the value of a field after a save."""
    is_file = isinstance(field, FileField) and not is_expression(value)
    return field.get_prep_value(value) if is_file else freeze(value)


def same(field: AnyField, one: object, other: object, ordered: bool = True) -> bool:
    """Return True if two values of a field are equal to the database.

    A form's "5" equals the number 5; but a JSON 1 equals neither 1.0 nor true.

    Args:
        ordered: True if the order of the keys of a JSON object counts; for the database it does not.
    """
    if one is other:
        return True
    kind = type(one)
    if kind is type(other) and kind in IMMUTABLE and not isinstance(field, JSONField):
        return bool(one == other or (one != one and other != other))  # NaN is not equal to itself
    if is_expression(one) or is_expression(other):
        return False
    return bool(prepared(field, one, ordered) == prepared(field, other, ordered))


def prepared(field: AnyField, value: object, ordered: bool) -> Any:
    """Return the value that the field passes to the database, in a form that can be compared."""
    if value is None:
        return None
    if isinstance(field, JSONField):
        return as_json(value, field.encoder, ordered)
    base = getattr(field, "base_field", None)
    if base is not None and isinstance(value, list | tuple):
        return [prepared(base, item, ordered) for item in value]
    value = field.get_prep_value(value)
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def as_json(value: object, encoder: type[json.JSONEncoder] | None = None, ordered: bool = False) -> str:
    """Return a JSON-like value as text: the same for values that are equal, with the same types at all levels."""
    try:
        return json.dumps(value, cls=encoder, sort_keys=not ordered)
    except TypeError:
        # Keys of different types can't be sorted; if the value can't be encoded at all, the save reports it.
        return json.dumps(value, cls=encoder)
