"""What is done with a field that somebody else has changed too: refused, overwritten, or merged.

A policy is `REFUSE`, `LAST_WINS`, or a function of (original, mine, theirs) that returns the value to be saved. The
functions here are such merges; yours may raise `CannotMerge`.
"""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from django.db import models

from interlock.django.guarded.errors import CannotMerge

Merge: TypeAlias = Callable[[Any, Any, Any], Any]


class Outcome(Enum):
    """The two policies that need no function."""

    REFUSE = "refuse"
    LAST_WINS = "last wins"


REFUSE: Final = Outcome.REFUSE
LAST_WINS: Final = Outcome.LAST_WINS
OTHERS: Final = "*"
"""The key of `on_stale` that stands for all fields that it doesn't name."""

Policy: TypeAlias = Outcome | Merge
OnStale: TypeAlias = Policy | Mapping[str, Policy]

_GONE: Final = object()


def added(original: Any, mine: Any, theirs: Any) -> Any:
    """Add up what both have added: for counters and balances; None counts as nothing."""
    if mine is None:
        raise CannotMerge("a number that was cleared can't be added up")
    return (theirs or 0) + (mine - (original or 0))


def merged_items(original: Any, mine: Any, theirs: Any) -> list[Any]:
    """Keep what either has added and drop what either has removed: for lists of tags, arrays, sets.

    The order is theirs, then what is new in mine. What stands in a list twice counts once.
    """
    original, mine, theirs = (list(each or ()) for each in (original, mine, theirs))
    kept = [item for item in theirs if item in mine or item not in original]
    new = [item for item in mine if item not in original]
    merged: list[Any] = []
    for item in kept + new:
        if item not in merged:
            merged.append(item)
    return merged


def merged_keys(original: Any, mine: Any, theirs: Any) -> dict[Any, Any]:
    """Merge two dictionaries key by key, and the dictionaries in them likewise.

    Raises:
        CannotMerge: both have changed the same key, to different values.
    """
    if not all(isinstance(each, dict) or each is None for each in (original, mine, theirs)):
        raise CannotMerge("only dictionaries are merged key by key")
    original, mine, theirs = (each or {} for each in (original, mine, theirs))
    merged = {}
    for key in [*theirs, *(key for key in mine if key not in theirs)]:
        value = _merged_value(*(each.get(key, _GONE) for each in (original, mine, theirs)))
        if value is not _GONE:
            merged[key] = value
    return merged


def _merged_value(original: object, mine: object, theirs: object) -> Any:
    if _alike(mine, original) or _alike(mine, theirs):
        return theirs
    if _alike(theirs, original):
        return mine
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return merged_keys(original if isinstance(original, dict) else {}, mine, theirs)
    raise CannotMerge("both have changed the same key")


def _alike(one: object, other: object) -> bool:
    """True if two JSON-like values are equal, of the same types all the way down; `_GONE` is like itself."""
    one, other = (json.dumps(each, sort_keys=True, default=repr) for each in (one, other))
    return bool(one == other)


def policies_of(model: type[models.Model]) -> dict[str, Policy]:
    """Return the policies that `on_stale` of a model and of its bases name, by the name of the field or `OTHERS`."""
    found: dict[str, Policy] = {}
    for base in reversed(model.__mro__):
        said: OnStale | None = vars(base).get("on_stale")
        if isinstance(said, Mapping):
            found.update(said)
        elif said is not None:
            # One policy for the whole model: what its bases said of single fields no longer counts.
            found = {OTHERS: said}
    return found
