"""What a guarded model raises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, models

from interlock.core.errors import LockError


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """One field that two wrote.

    Attributes:
        original: the value that was read; of a foreign key the key.
        mine: the value that was to be written.
        theirs: the value that somebody else has written meanwhile.
    """

    original: object
    mine: object
    theirs: object


class StaleObject(LockError, DatabaseError):
    """Somebody else has changed, or deleted, what was to be saved; nothing was written.

    It is a `DatabaseError`, as what Django raises when a forced update finds no row. The message names the fields;
    their values, which may be secret or long, are only in `fields`.

    Attributes:
        instance: the instance that was saved; it still has all its values.
        fields: the `FieldConflict` of each field concerned, by the name of the field; empty if the row is gone.
        deleted: True if there is no such row any more.
    """

    def __init__(
        self, instance: models.Model, fields: Mapping[str, FieldConflict] | None = None, deleted: bool = False
    ) -> None:
        self.instance: Any = instance
        self.fields: dict[str, FieldConflict] = dict(fields or {})
        self.deleted = deleted
        super().__init__(self._message())

    def _message(self) -> str:
        what = f"{self.instance._meta.label} {self.instance.pk!r}"
        if self.deleted:
            return (
                f"{what} was deleted by somebody else since it was read, so it was not saved; "
                f"save(force_insert=True) makes it anew"
            )
        names = ", ".join(self.fields)
        return (
            f"{what} was not saved: somebody else has changed {names} since it was read; refresh_from_db() and change"
            f" it again, or say in {type(self.instance).__name__}.on_stale what is to be done with such a field"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), (self.instance, self.fields, self.deleted)


class CannotMerge(ValueError):
    """Raised by a merge function that can't bring both values together; the field is refused then."""
