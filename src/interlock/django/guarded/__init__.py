"""Models whose `save()` never overwrites another writer's changes."""

from interlock.django.guarded.conflicts import (
    LAST_WINS,
    REFUSE,
    CannotMerge,
    FieldConflict,
    StaleObject,
    added,
    merged_items,
    merged_keys,
)
from interlock.django.guarded.model import Guarded, changes, state_tag, verify, written

__all__ = [
    "CannotMerge",
    "FieldConflict",
    "Guarded",
    "LAST_WINS",
    "REFUSE",
    "StaleObject",
    "added",
    "changes",
    "merged_items",
    "merged_keys",
    "state_tag",
    "verify",
    "written",
]
