"""Values of fields: kept so that they can't be changed, and compared as the database would see them."""

import json
import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, NamedTuple, Never, TypeAlias
from uuid import UUID

from django.db import models
from django.db.models import FileField, JSONField

_SCALARS = (NoneType, bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, UUID)
IMMUTABLE = frozenset(_SCALARS)
AnyField: TypeAlias = "models.Field[Never, object]"
"""A field of a model, whatever it takes; what it gives may be anything."""


class Frozen(bytes):
    """A value that can be changed in place, pickled as it was when it was kept.

    That is several times as fast as a deep copy, and nothing for the collector to look into; rows are read much more
    often than they are saved.
    """

    __slots__ = ()


class Adapted(NamedTuple):
    """A value that the column holds otherwise than it was given.

    Attributes:
        given: what the program has saved, which its next change starts from; as it is kept.
        held: what is in the row.
    """

    given: Any
    held: Any


def is_expression(value: object) -> bool:
    """True if the database computes the value: F() and the like."""
    return hasattr(value, "resolve_expression")


def freeze(value: object) -> Any:
    """Return what to keep of a value that may be changed in place later."""
    if isinstance(value, _SCALARS) or is_expression(value):
        return value
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    try:
        return Frozen(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    except Exception:
        return value  # of one that can't be pickled, changes in place go unnoticed


def thaw(kept: object) -> Any:
    """Return the value that was kept, as the program knows it."""
    if type(kept) is Adapted:
        kept = kept.given
    return pickle.loads(kept) if type(kept) is Frozen else kept


def thaw_held(kept: object) -> Any:
    """Return the value that was kept, as the row holds it."""
    return thaw(kept.held if type(kept) is Adapted else kept)


def kept_of(field: AnyField, value: object) -> Any:
    """Return what to keep of the value of a field after it was saved."""
    is_file = isinstance(field, FileField) and not is_expression(value)
    return field.get_prep_value(value) if is_file else freeze(value)


def same(field: AnyField, one: object, other: object, ordered: bool = True) -> bool:
    """True if two values of a field are one and the same to the database.

    A form's "5" is the number 5; but a JSON 1 is neither 1.0 nor true.

    Args:
        ordered: whether the order of the keys of a JSON object counts; to a person it may, to a database it doesn't.
    """
    if one is other:
        return True
    kind = type(one)
    if kind is type(other) and kind in IMMUTABLE and not isinstance(field, JSONField):
        return bool(one == other or (one != one and other != other))  # NaN, which is not equal to itself
    if is_expression(one) or is_expression(other):
        return False
    return bool(prepared(field, one, ordered) == prepared(field, other, ordered))


def prepared(field: AnyField, value: object, ordered: bool) -> Any:
    """Return the value as the field gives it to a database, in a form that can be compared."""
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
    """Return a JSON-like value as a text: the same for values that are equal, of the same types all the way down."""
    try:
        return json.dumps(value, cls=encoder, sort_keys=not ordered)
    except TypeError:
        # Keys of several types can't be sorted; what can't be encoded at all is said by the save itself.
        return json.dumps(value, cls=encoder)
