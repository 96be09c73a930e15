"""What an instance knows of its row: the values as they were read or written last."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from interlock.django.guarded.plan import Plan, plan_of
from interlock.django.guarded.undo import Scope
from interlock.django.guarded.values import IMMUTABLE, freeze, kept_of

KEY: Final = "_guarded_snapshot"
"""Where an instance keeps its snapshot, in its `__dict__`."""


class Missing(Enum):
    """The one value that says that there is none; also after it was pickled."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

Undo: TypeAlias = tuple[Scope, Mapping[str, Any]]
"""A scope, and what the snapshot said before something was saved in it; MISSING: nothing."""


class Snapshot:
    """The values of a row, frozen; never changed itself, so that copies of an instance may share it.

    Attributes:
        db: the alias of the database that it was read from or saved to last.
        values: what `values.freeze` keeps of each, by the name of the attribute; what was never read is not there.
        undos: what to go back to if a transaction that is still open is rolled back; the oldest first.
        written: the names of the fields that were written last.
    """

    __slots__ = ("_row", "db", "undos", "written")

    def __init__(
        self,
        db: str | None,
        row: "dict[str, Any] | tuple[tuple[str, ...], list[Any]]",
        undos: tuple[Undo, ...] = (),
        written: frozenset[str] = frozenset(),
    ) -> None:
        self.db = db
        self._row = row
        self.undos = undos
        self.written = written

    @property
    def values(self) -> dict[str, Any]:
        """The values by the names of the attributes; made when first asked for, since most rows are never saved."""
        if type(self._row) is tuple:
            self._row = dict(zip(*self._row, strict=True))
        return self._row  # type: ignore[return-value]

    def settled(self) -> "Snapshot":
        """Return it without what was rolled back, and without the undos of what was committed."""
        if not self.undos:
            return self
        values = dict(self.values)
        kept: list[Undo] = []
        for scope, before in reversed(self.undos):
            if scope.undone:
                _restore(values, before)
            elif not scope.over:
                kept.append((scope, before))
        return Snapshot(self.db, values, tuple(reversed(kept)), self.written)

    def with_read(self, db: str | None, values: Mapping[str, Any]) -> "Snapshot":
        """Return it with values that were read by a database's alias."""
        return Snapshot(db, {**self.values, **values}, self.undos, self.written)

    def with_written(
        self, db: str, values: dict[str, Any], written: frozenset[str], scope: Scope | None
    ) -> "Snapshot":
        """Return it with values that were saved.

        Args:
            db: the alias of the database.
            values: MISSING where it is no longer known what stands there.
            written: the names of the fields.
            scope: of the transaction that is open; None if there is none.
        """
        after = dict(self.values)
        before = {attname: after.get(attname, MISSING) for attname in values}
        _restore(after, values)
        undos = self.undos
        if scope is not None:
            if undos and undos[-1][0] is scope:
                before = {**before, **undos[-1][1]}
                undos = undos[:-1]
            undos = (*undos, (scope, before))
        return Snapshot(db, after, undos, self.written | written)

    def with_nothing_written(self) -> "Snapshot":
        """Return it as it is when a save begins."""
        return Snapshot(self.db, self.values, self.undos)


def _restore(values: dict[str, Any], saved: Mapping[str, Any]) -> None:
    for attname, value in saved.items():
        if value is MISSING:
            values.pop(attname, None)
        else:
            values[attname] = value


def of_row(model: Any, db: str | None, field_names: Iterable[str], row: Any) -> Snapshot:
    """Return the snapshot of a row, as `from_db` gets it."""
    plan = plan_of(model)
    attnames, open_at = plan.attnames, plan.open_at
    values = list(row)
    if len(values) != len(attnames):
        attnames, open_at = plan.some(field_names)
    for index in open_at:
        if type(values[index]) not in IMMUTABLE:
            values[index] = freeze(values[index])
    return Snapshot(db, (attnames, values))


def of_attributes(plan: Plan, instance: Any, attnames: Iterable[str]) -> dict[str, Any]:
    """Return what to keep of attributes that stand in the row now; MISSING where one is not loaded."""
    data = vars(instance)
    found = {}
    for attname in attnames:
        value = data.get(attname, MISSING)
        simple = value is MISSING or type(value) in IMMUTABLE
        found[attname] = value if simple else kept_of(plan.by_attname[attname], value)
    return found


def snapshot_of(instance: Any) -> Snapshot | None:
    """Return what an instance knows of its row, as it stands after any rollback; None if it knows nothing."""
    found: Snapshot | None = vars(instance).get(KEY)
    if found is None:
        return None
    settled = found.settled()
    if settled is not found:
        vars(instance)[KEY] = settled
    return settled
