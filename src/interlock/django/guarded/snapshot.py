"""The snapshot of an instance: the values of its row as they were last read or written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from django.db import models, router
from django.db.models.options import Options

from interlock.django.guarded.model_fields import ModelPlan, key_fields, some_of
from interlock.django.guarded.values import IMMUTABLE, freeze, kept_of, same, thaw
from interlock.django.transactions import Scope

KEY: Final = "_guarded_snapshot"
"""The key of the snapshot in an instance's `__dict__`."""


MISSING: Final = object()
"""Stands for a missing value; it is in no snapshot, so that it is never pickled."""

RowValues: TypeAlias = tuple[Any, ...]
"""A row as read: the frozen values, their attribute names, and the alias of the database."""

Undo: TypeAlias = tuple[Scope, Mapping[str, Any]]
"""A scope, and the snapshot's values before a save in it; MISSING for values that it did not have."""


class Snapshot:
    """The frozen values of a row; immutable, so that copies of an instance can share it.

    Attributes:
        db: the alias of the database from which it was last read, or to which it was last saved.
        values: the result of `values.freeze` for each attribute; an attribute that was never read is missing.
        undos: the values to restore if a transaction that is still open is rolled back; the oldest first.
    """

    __slots__ = ("db", "undos", "values")

    def __init__(self, db: str | None, values: dict[str, object], undos: tuple[Undo, ...] = ()) -> None:
        self.db = db
        self.values = values
        self.undos = undos

    def settled(self) -> "Snapshot":
        """Return the snapshot without the effects of rolled back scopes, and without the undos of committed ones."""
        values = self.values
        kept: list[Undo] = []
        for scope, before in reversed(self.undos):
            scope = scope.whole()
            if scope.undone:
                values = _restored(values, before)
            elif not scope.over:
                kept.append((scope, {**kept.pop()[1], **before} if kept and kept[-1][0] is scope else before))
        return Snapshot(self.db, values, tuple(reversed(kept)))

    def __deepcopy__(self, memo: object) -> "Snapshot":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # A process that unpickles it never learns how a transaction of this process ends.
        return Snapshot, (self.db, self.settled().values)

    def with_read(self, db: str | None, values: Mapping[str, object]) -> "Snapshot":
        """Return the snapshot with values that were read from a database."""
        return Snapshot(db, {**self.values, **values}, self.undos)

    def with_written(self, db: str, values: dict[str, object], scope: Scope | None) -> "Snapshot":
        """Return the snapshot with values that were saved.

        Args:
            db: the alias of the database.
            values: the values; MISSING where the row's value is unknown.
            scope: the scope of the open transaction; None if there is none.
        """
        undo = (scope, {attname: self.values.get(attname, MISSING) for attname in values})
        return Snapshot(db, _restored(self.values, values), self.undos if scope is None else (*self.undos, undo))  # type: ignore[arg-type]

    def is_of(self, instance: models.Model, meta: "Options[models.Model]", using: str, unknown: bool = False) -> bool:
        """Return True if the snapshot is of the row to which an instance would be saved in a table.

        Args:
            unknown: the result if a part of the key was not read.
        """
        return self.is_of_database(instance, using) and all(
            same(field, thaw(self.values[field.attname]), vars(instance).get(field.attname))
            if field.attname in self.values
            else unknown
            for field in key_fields(meta)
        )

    def is_of_database(self, instance: models.Model, using: str) -> bool:
        """Return True if the snapshot is of the database of an alias.

        A snapshot from a replica counts as one of the database to which the routers send the instance's writes.
        """
        if self.db == using:
            return True
        model = type(instance)
        return using in (router.db_for_write(model, instance=instance), router.db_for_read(model, instance=instance))


def _restored(values: dict[str, object], saved: Mapping[str, object]) -> dict[str, object]:
    """Return values with those that were saved; without those that are MISSING there."""
    return {attname: value for attname, value in {**values, **saved}.items() if value is not MISSING}


def of_row(plan: ModelPlan, db: str | None, field_names: Iterable[str], row: Sequence[object]) -> RowValues:
    """Return the raw snapshot of a row from `from_db`; a `Snapshot` is made of it only when needed, for speed."""
    attnames, open_at = plan.attnames, plan.open_at
    if len(row) != len(attnames):
        attnames, open_at = some_of(plan, tuple(field_names))
    kept = [*row, attnames, db]
    for index in open_at:
        kept[index] = freeze(row[index])
    return tuple(kept)  # a tuple of atomic values, which the garbage collector stops tracking


def of_values(plan: ModelPlan, values: Mapping[str, object]) -> dict[str, Any]:
    """Freeze values of a row, by attribute; MISSING stays MISSING."""
    return {
        attname: value if value is MISSING or type(value) in IMMUTABLE else kept_of(plan.by_attname[attname], value)
        for attname, value in values.items()
    }


def snapshot_of(instance: models.Model) -> Snapshot | None:
    """Return the snapshot of an instance, with rollbacks applied; None if it has none."""
    found: RowValues | Snapshot | None = vars(instance).get(KEY)
    if type(found) is tuple:
        *row, attnames, db = found
        found = vars(instance)[KEY] = Snapshot(db, dict(zip(attnames, row, strict=True)))
    assert found is None or isinstance(found, Snapshot)
    if found is not None and found.undos:
        found = vars(instance)[KEY] = found.settled()
    return found
