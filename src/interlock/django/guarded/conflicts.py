"""The exception of a guarded model, and the policies for a field that another writer has changed too.

A policy is `REFUSE`, `LAST_WINS`, or a function of (original, mine, theirs) that returns the value to save. This
module has merge functions for common cases; your own may raise `CannotMerge`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from django.db import DatabaseError, models

from interlock.core.errors import LockError


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """One field that two writers have changed.

    Attributes:
        original: the value that was read; for a foreign key, the key.
        mine: the value that this save would write.
        theirs: the value that another writer has written.
    """

    original: object
    mine: object
    theirs: object


class StaleObject(LockError, DatabaseError):
    """Another writer has changed or deleted the row; nothing was written.

    It is a `DatabaseError`, like Django's error when a forced update finds no row. The message names the fields;
    their values, which may be secret or long, are only in `fields`.

    Attributes:
        instance: the instance of the save; it still has all its values.
        fields: the `FieldConflict` of each conflicting field, by the name of the field; empty if the row is gone.
        deleted: True if the row does not exist any more.
        set_by_save: the names of those fields that the model's own `save()` or a `pre_save` receiver has set.
    """

    def __init__(
        self,
        instance: models.Model,
        fields: Mapping[str, FieldConflict] | None = None,
        deleted: bool = False,
        set_by_save: Iterable[str] = (),
    ) -> None:
        self.instance: Any = instance
        self.fields: dict[str, FieldConflict] = dict(fields or {})
        self.deleted = deleted
        self.set_by_save = tuple(set_by_save)
        super().__init__(self._message())

    def _message(self) -> str:
        what = f"{self.instance._meta.label} {self.instance.pk!r}"
        if self.deleted:
            return (
                f"{what} was not saved: somebody else has deleted it since it was read. "
                f"Call save(force_insert=True) to create it again."
            )
        names, model = ", ".join(self.fields), type(self.instance).__name__
        message = (
            f"{what} was not saved: somebody else has changed {names} since it was read. Call refresh_from_db() and "
            f"repeat the change, or set a policy for the field in {model}.on_stale."
        )
        if self.set_by_save:
            said = ", ".join(f'"{name}": LAST_WINS' for name in self.set_by_save)
            message += (
                f" save() itself has set {', '.join(self.set_by_save)}. If the last value may win there, set "
                f"{model}.on_stale = {{{said}}}."
            )
        return message

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return type(self), (self.instance, self.fields, self.deleted, self.set_by_save)


class CannotMerge(ValueError):
    """A merge function raises it if it can't merge the values; the save is refused then."""


Merge: TypeAlias = Callable[[Any, Any, Any], Any]


class Outcome(Enum):
    """The two policies that need no function."""

    REFUSE = "refuse"
    LAST_WINS = "last wins"


REFUSE: Final = Outcome.REFUSE
LAST_WINS: Final = Outcome.LAST_WINS
OTHERS: Final = "*"
"""The key of `on_stale` for all other fields."""

Policy: TypeAlias = Outcome | Merge
OnStale: TypeAlias = Policy | Mapping[str, Policy]

_GONE: Final = object()


def added(original: object, mine: Any, theirs: object) -> Any:
    """Apply both differences to the original: for counters and balances; None counts as zero."""
    if mine is None:
        raise CannotMerge("a cleared number cannot be added")
    return (theirs or 0) + (mine - (original or 0))


def merged_items(original: Any, mine: Any, theirs: Any) -> list[object]:
    """Keep items that either writer has added, and drop items that either has removed: for tags, arrays, sets.

    The order is theirs, followed by the items that are new in mine. Duplicate items count once.
    """
    original, mine, theirs = (list(each or ()) for each in (original, mine, theirs))
    kept = [item for item in theirs if item in mine or item not in original]
    merged = kept + [item for item in mine if item not in original]
    return [item for index, item in enumerate(merged) if item not in merged[:index]]


def merged_keys(original: Any, mine: Any, theirs: Any) -> dict[object, object]:
    """Merge two dictionaries key by key, nested dictionaries too.

    Raises:
        CannotMerge: both writers have changed the same key to different values.
    """
    if not all(isinstance(each, dict) or each is None for each in (original, mine, theirs)):
        raise CannotMerge("only dictionaries are merged key by key")
    original, mine, theirs = (each or {} for each in (original, mine, theirs))
    merged = {
        key: _merged_value(*(each.get(key, _GONE) for each in (original, mine, theirs)))
        for key in [*theirs, *(key for key in mine if key not in theirs)]
    }
    return {key: value for key, value in merged.items() if value is not _GONE}


def _merged_value(original: object, mine: object, theirs: object) -> Any:
    if _alike(mine, original) or _alike(mine, theirs):
        return theirs
    if _alike(theirs, original):
        return mine
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return merged_keys(original if isinstance(original, dict) else {}, mine, theirs)
    raise CannotMerge("both have changed the same key")


def _alike(one: object, other: object) -> bool:
    """Return True if two JSON-like values are equal, with the same types at all levels; `_GONE` equals itself."""
    one, other = (json.dumps(each, sort_keys=True, default=repr) for each in (one, other))
    return bool(one == other)


def policies_of(model: type[models.Model]) -> dict[str, Policy]:
    """Return the policies in `on_stale` of a model and its bases, by the name of the field or `OTHERS`."""
    found: dict[str, Policy] = {}
    for base in reversed(model.__mro__):
        said: OnStale | None = vars(base).get("on_stale")
        if isinstance(said, Mapping):
            found.update(said)
        elif said is not None:
            # One policy for the whole model replaces the bases' policies for single fields.
            found = {OTHERS: said}
    return found
