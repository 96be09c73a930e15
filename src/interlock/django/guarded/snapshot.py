"""What an instance knows of its row: the values as they were read or written last."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from django.db import models, router
from django.db.models.options import Options

from interlock.django.guarded.plan import ModelPlan, key_fields
from interlock.django.guarded.values import IMMUTABLE, freeze, kept_of, same, thaw
from interlock.django.transactions import Scope

KEY: Final = "_guarded_snapshot"
"""Where an instance keeps its snapshot, in its `__dict__`."""


class Missing(Enum):
    """The one value that says that there is none; also after it was pickled."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

Row: TypeAlias = tuple[Any, ...]
"""A row as it was read: the frozen values, the names of their attributes, and the alias of the database."""

Undo: TypeAlias = tuple[Scope, Mapping[str, Any]]
"""A scope, and what the snapshot said before something was saved in it; MISSING: nothing."""


class Snapshot:
    """The values of a row, frozen; never changed itself, so that copies of an instance may share it.

    Attributes:
        db: the alias of the database that it was read from or saved to last.
        values: what `values.freeze` keeps of each, by the name of the attribute; what was never read is not there.
        undos: what to go back to if a transaction that is still open is rolled back; the oldest first.
    """

    __slots__ = ("db", "undos", "values")

    def __init__(self, db: str | None, values: dict[str, object], undos: tuple[Undo, ...] = ()) -> None:
        self.db = db
        self.values = values
        self.undos = undos

    def settled(self) -> "Snapshot":
        """Return it without what was rolled back, and without the undos of what was committed."""
        values = dict(self.values)
        kept: list[Undo] = []
        for scope, before in reversed(self.undos):
            scope = scope.whole()
            if scope.undone:
                _restore(values, before)
            elif not scope.over:
                kept.append((scope, {**kept.pop()[1], **before} if kept and kept[-1][0] is scope else before))
        return Snapshot(self.db, values, tuple(reversed(kept)))

    def __deepcopy__(self, memo: object) -> "Snapshot":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that gets it never learns how a transaction of this one ends.
        return Snapshot, (self.db, self.settled().values)

    def with_read(self, db: str | None, values: Mapping[str, object]) -> "Snapshot":
        """Return it with values that were read by a database's alias."""
        return Snapshot(db, {**self.values, **values}, self.undos)

    def with_written(self, db: str, values: dict[str, object], scope: Scope | None) -> "Snapshot":
        """Return it with values that were saved.

        Args:
            db: the alias of the database.
            values: MISSING where it is no longer known what stands there.
            scope: of the transaction that is open; None if there is none.
        """
        after = dict(self.values)
        undo = (scope, {attname: after.get(attname, MISSING) for attname in values})
        _restore(after, values)
        return Snapshot(db, after, self.undos if scope is None else (*self.undos, undo))  # type: ignore[arg-type]

    def is_of(self, instance: models.Model, meta: "Options[models.Model]", using: str, unknown: bool = False) -> bool:
        """Tell whether it is of the very row of a table that an instance would be saved to.

        Args:
            unknown: what counts where a part of the key was not read.
        """
        return self.is_of_database(instance, using) and all(
            same(field, thaw(self.values[field.attname]), vars(instance).get(field.attname))
            if field.attname in self.values
            else unknown
            for field in key_fields(meta)
        )

    def is_of_database(self, instance: models.Model, using: str) -> bool:
        """Tell whether it is of the database of an alias.

        What was read from a replica is of the database to which the routers send the instance's writes.
        """
        if self.db == using:
            return True
        model = type(instance)
        return using in (router.db_for_write(model, instance=instance), router.db_for_read(model, instance=instance))


def _restore(values: dict[str, object], saved: Mapping[str, object]) -> None:
    for attname, value in saved.items():
        if value is MISSING:
            values.pop(attname, None)
        else:
            values[attname] = value


def of_row(plan: ModelPlan, db: str | None, field_names: Iterable[str], row: Sequence[object]) -> Row:
    """Return what to keep of a row, as `from_db` gets it; few rows are saved, so no more is made of it before."""
    attnames, open_at = plan.attnames, plan.open_at
    if len(row) != len(attnames):
        attnames, open_at = plan.some(field_names)
    kept = [*row, attnames, db]
    for index in open_at:
        kept[index] = freeze(row[index])
    return tuple(kept)  # one object, into which the collector needs not look: all that is in it is plain


def of_values(plan: ModelPlan, values: Mapping[str, object]) -> dict[str, Any]:
    """Return what to keep of values, by their attributes, that are in the row now; MISSING is kept."""
    return {
        attname: value if value is MISSING or type(value) in IMMUTABLE else kept_of(plan.by_attname[attname], value)
        for attname, value in values.items()
    }


def snapshot_of(instance: models.Model) -> Snapshot | None:
    """Return what an instance knows of its row, as it stands after any rollback; None if it knows nothing."""
    found: Row | Snapshot | None = vars(instance).get(KEY)
    if type(found) is tuple:
        *row, attnames, db = found
        found = vars(instance)[KEY] = Snapshot(db, dict(zip(attnames, row, strict=True)))
    assert found is None or isinstance(found, Snapshot)
    if found is not None and found.undos:
        found = vars(instance)[KEY] = found.settled()
    return found
