"""What an instance knows of its row: the values as they were read or written last."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from interlock.django.guarded.plan import ModelPlan
from interlock.django.guarded.undo import Age, Scope
from interlock.django.guarded.values import IMMUTABLE, freeze, kept_of

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
        written: the names of the fields that were written last.
    """

    __slots__ = ("_settled", "db", "undos", "values", "written")

    def __init__(
        self,
        db: str | None,
        values: dict[str, Any],
        undos: tuple[Undo, ...] = (),
        written: frozenset[str] = frozenset(),
    ) -> None:
        self.db = db
        self.values = values
        self.undos = undos
        self.written = written
        self._settled: object = None

    def settled(self) -> "Snapshot":
        """Return it without what was rolled back, and without the undos of what was committed."""
        if not self.undos or self._settled is Age.now:
            return self
        self._settled = Age.now
        values = dict(self.values)
        kept: list[Undo] = []
        for scope, before in reversed(self.undos):
            if scope.undone:
                _restore(values, before)
            elif not scope.over:
                if kept and kept[-1][0].whole is scope.whole:
                    before = {**kept.pop()[1], **before}
                kept.append((scope, before))
        if len(kept) == len(self.undos):
            return self
        return self._aged(Snapshot(self.db, values, tuple(reversed(kept)), self.written))

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has another age.
        return Snapshot, (self.db, self.values, self.undos, self.written)

    def _aged(self, found: "Snapshot") -> "Snapshot":
        """Return what was made of this, which is settled if this is."""
        found._settled = self._settled
        return found

    def with_read(self, db: str | None, values: Mapping[str, Any]) -> "Snapshot":
        """Return it with values that were read by a database's alias."""
        return self._aged(Snapshot(db, {**self.values, **values}, self.undos, self.written))

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
            if undos and undos[-1][0].whole is scope:
                before = {**before, **undos[-1][1]}
                undos = undos[:-1]
            undos = (*undos, (scope, before))
        return self._aged(Snapshot(db, after, undos, self.written | written))

    def with_nothing_written(self) -> "Snapshot":
        """Return it as it is when a save begins."""
        return self._aged(Snapshot(self.db, self.values, self.undos))


def _restore(values: dict[str, Any], saved: Mapping[str, Any]) -> None:
    for attname, value in saved.items():
        if value is MISSING:
            values.pop(attname, None)
        else:
            values[attname] = value


def of_row(plan: ModelPlan, db: str | None, field_names: Iterable[str], row: Sequence[Any]) -> Row:
    """Return what to keep of a row, as `from_db` gets it; few rows are saved, so no more is made of it before."""
    attnames, open_at = plan.attnames, plan.open_at
    if len(row) != len(attnames):
        attnames, open_at = plan.some(field_names)
    kept = [*row, attnames, db]
    for index in open_at:
        kept[index] = freeze(row[index])
    return tuple(kept)  # one object, into which the collector needs not look: all that is in it is plain


def of_attributes(plan: ModelPlan, instance: Any, attnames: Iterable[str]) -> dict[str, Any]:
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
    found: Row | Snapshot | None = vars(instance).get(KEY)
    if found is None:
        return None
    if type(found) is tuple:
        *row, attnames, db = found
        found = vars(instance)[KEY] = Snapshot(db, dict(zip(attnames, row, strict=True)))
    assert isinstance(found, Snapshot)
    settled = found.settled()
    if settled is not found:
        vars(instance)[KEY] = settled
    return settled
