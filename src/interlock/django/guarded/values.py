"""Values of fields: kept so that nobody can change them, and compared as the database would see them."""

import copy
import json
import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

from django.db.models import FileField, JSONField

IMMUTABLE = frozenset(
    {NoneType, bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, UUID},
)
_SCALARS = tuple(IMMUTABLE)


class Frozen(bytes):
    """A value that can be changed in place, pickled as it was when it was kept.

    That is several times as fast as a deep copy, and nothing for the collector to look into; rows are read much more
    often than they are saved.
    """

    __slots__ = ()

    def thaw(self) -> Any:
        """Return the value as it was, as a new object."""
        return pickle.loads(self)


class Copied:
    """A value that can be changed in place and can't be pickled, as it was when it was kept."""

    __slots__ = ("_copy",)

    def __init__(self, value: object) -> None:
        self._copy = copy.deepcopy(value)

    def thaw(self) -> Any:
        """Return the value as it was, as a new object."""
        return copy.deepcopy(self._copy)


_FROZEN = (Frozen, Copied)


class Adapted:
    """A value that the column holds otherwise than it was given.

    Attributes:
        given: what the program has saved, which its next change starts from; as it is kept.
        held: what stands in the row.
    """

    __slots__ = ("given", "held")

    def __init__(self, given: Any, held: Any) -> None:
        self.given = given
        self.held = held


def is_expression(value: object) -> bool:
    """True if the database computes the value: F() and the like."""
    return hasattr(value, "resolve_expression")


def freeze(value: Any) -> Any:
    """Return what to keep of a value that may be changed in place later."""
    kind = type(value)
    if kind in _EMPTY:
        return _pickled(value) if value else _EMPTY[kind]
    if kind in IMMUTABLE or isinstance(value, _SCALARS) or is_expression(value):
        return value
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return _pickled(value)


def _pickled(value: object) -> Frozen | Copied:
    try:
        return Frozen(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    except Exception:
        return Copied(value)


_EMPTY: dict[type, Frozen | Copied] = {list: _pickled([]), dict: _pickled({})}


def thaw(kept: Any) -> Any:
    """Return the value that was kept, as the program knows it."""
    if type(kept) is Adapted:
        kept = kept.given
    return kept.thaw() if isinstance(kept, _FROZEN) else kept


def thaw_held(kept: Any) -> Any:
    """Return the value that was kept, as the row holds it."""
    return thaw(kept.held if type(kept) is Adapted else kept)


def kept_of(field: Any, value: Any) -> Any:
    """Return what to keep of the value of a field after it was saved."""
    if isinstance(field, FileField) and not is_expression(value):
        return field.get_prep_value(value)
    return freeze(value)


def same(field: Any, one: Any, other: Any, ordered: bool = True) -> bool:
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
    if kind in (list, dict) and kind is type(other) and one == other and identical(one, other):
        return True
    one, other = prepared(field, one, ordered), prepared(field, other, ordered)
    return bool(one == other)


def prepared(field: Any, value: Any, ordered: bool) -> Any:
    """Return the value as the field gives it to a database, in a form that can be compared."""
    if value is None:
        return None
    if isinstance(field, JSONField):
        return _json(field, value, ordered)
    base = getattr(field, "base_field", None)
    if base is not None and isinstance(value, list | tuple):
        return [prepared(base, item, ordered) for item in value]
    value = field.get_prep_value(value)
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def _json(field: JSONField, value: Any, ordered: bool) -> str:
    try:
        return json.dumps(value, cls=field.encoder, sort_keys=not ordered)
    except TypeError:
        # Keys of several types can't be sorted; what can't be encoded at all is said by the save itself.
        return json.dumps(value, cls=field.encoder)


def alike(one: Any, other: Any) -> bool:
    """True if two JSON-like values are equal, of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def identical(one: Any, other: Any) -> bool:
    """True if two JSON-like values are alike, and the keys in the same order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(identical, one.values(), other.values()))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(identical, one, other))
    return type(one) is type(other) and bool(one == other)
