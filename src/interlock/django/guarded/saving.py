"""The save of one table of a guarded instance."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from django import VERSION
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F
from django.db.models.sql.where import AND

from interlock.django.guarded.conflicts import LAST_WINS, REFUSE, CannotMerge, FieldConflict, StaleObject
from interlock.django.guarded.model_fields import ModelPlan, StillAsRead, adapting, column_of, key_fields
from interlock.django.guarded.snapshot import KEY, MISSING, Snapshot, of_values, snapshot_of
from interlock.django.guarded.values import (
    IMMUTABLE,
    Adapted,
    AnyField,
    Frozen,
    freeze,
    is_expression,
    kept_of,
    reads_clock,
    same,
    thaw,
    thaw_held,
)
from interlock.django.transactions import scope_of

Triple = tuple[Any, Any, Any]
"""A field, None and a value: Django's form of an assignment of an UPDATE."""

Update = Callable[[Any, list[Triple]], Any]
"""Django's own `_do_update`, called with a query set and values; its result is true if a row matched."""

SAVING: Final = "_guarded_saving"
"""The attribute of an instance with its save in progress."""

WRITTEN: Final = "_guarded_written"
"""The attribute of an instance with the names of the fields that its last save has written."""

CALLED: Final = "_guarded_called"
"""The instance attribute that keeps the values from the call of `save()` until the save begins."""

FROM: Final = "_guarded_from"
"""The instance attribute that keeps these values during the save."""

_FENCED: Final = "_guarded_fences"


class FieldWrite(NamedTuple):
    """A field that a save writes.

    Attributes:
        kept: the snapshot's value.
        mine: the value to write; MISSING if the column is only compared, because its group is written.
        checked: True if the column must still have the snapshot's value.
    """

    field: Any
    kept: object
    mine: Any
    checked: bool


def is_guarded_save(instance: models.Model) -> bool:
    """Return True while a guarded instance is being saved."""
    return SAVING in vars(instance)


def keep_fenced(instance: models.Model, attname: str) -> None:
    """Refuse each further save of an instance if the row has a higher fence than the instance's attribute."""
    data = vars(instance)
    data[_FENCED] = {*data.get(_FENCED, ()), attname}


def changed(
    instance: models.Model, plan: ModelPlan, snapshot: Snapshot, values: Mapping[str, object]
) -> Iterator[str]:
    """Return an instance's values, by attribute, that differ from those read, or were never read."""
    as_read: object = None
    for attname, mine in values.items():
        kept = snapshot.values.get(attname, MISSING)
        if kept is not MISSING:
            field, kind = plan.by_attname[attname], type(mine)
            # The common case, without a call of `same`.
            simple = kind is type(kept) and kind in IMMUTABLE
            untouched = type(kept) is Frozen and kept == freeze(mine)
            if (
                untouched
                or kept is mine
                or (kept == mine if simple else same(field, thaw(kept), mine))
                or (type(kept) is Adapted and same(field, thaw_held(kept), mine))
            ):
                continue
            if attname in plan.shown and len(snapshot.values) >= len(plan.attnames):
                if as_read is None:
                    as_read = type(instance).from_db(
                        snapshot.db, plan.attnames, [thaw(snapshot.values[each]) for each in plan.attnames]
                    )
                if same(field, getattr(as_read, attname), mine):
                    continue
        yield attname


def locked_values(
    rows: models.QuerySet[models.Model],
    fields: Sequence[AnyField],
    connection: BaseDatabaseWrapper,
    locks: bool = True,
) -> Sequence[object] | None:
    """Lock a row until the end of the transaction, and return the values of some of its fields.

    Args:
        rows: a query set of that one row.
        fields: fields of the model of `rows`.
        locks: False if the database has no row locks and is locked as a whole already.

    Returns:
        The values; None if the row does not exist.
    """
    if connection.features.has_select_for_update:
        rows = rows.select_for_update()
    elif locks:
        # On SQLite start with an UPDATE: it waits for the database lock. An UPDATE after a SELECT fails instead of
        # waiting.
        meta = rows.model._meta
        keys = key_fields(meta)
        idle = keys if len(keys) == 1 else [each for each in meta.local_concrete_fields if each not in keys][:1]
        rows.update(**{each.name: F(each.name) for each in idle})
    found: list[Sequence[object]] = list(rows.values_list("pk", *(field.attname for field in fields)))
    return found[0][1:] if found else None


class TableSave:
    """A save of one table in progress.

    Args:
        instance: the instance.
        plan: the plan of its model.
        model: the model of the table.
        using: the alias of the database.
        raw: True for a fixture, which is written unchanged.
    """

    __slots__ = ("instance", "model", "plan", "snapshot", "touched", "using", "wrote")

    def __init__(
        self, instance: models.Model, plan: ModelPlan, model: type[models.Model], using: str, raw: bool
    ) -> None:
        self.instance, self.plan, self.model, self.using = instance, plan, model, using
        snapshot = snapshot_of(instance)
        known = snapshot is not None and not raw and snapshot.is_of(instance, model._meta, using)
        self.snapshot = snapshot if known else None
        self.wrote: dict[str, object] = {}
        self.touched: set[str] = set()
        if plan.converting and self.snapshot is not None:  # before `pre_save` may change the attributes
            own = {each: value for each, value in self.values().items() if each in plan.converting}
            self.touched.update(changed(instance, plan, self.snapshot, own))

    def values(self) -> dict[str, Any]:
        """Return the instance's present values for the table, by attribute."""
        return {
            field.attname: getattr(self.instance, field.attname)
            for field in self.model._meta.local_concrete_fields
            if field.attname in vars(self.instance)
        }

    def adapted(self, values: Mapping[str, object]) -> list[str]:
        """Return the attributes whose columns may store these values differently."""
        return [
            attname
            for attname, column in adapting(self.plan, self.using)
            if attname in values and column.adapts(values[attname])
        ]

    def update(
        self,
        base: models.QuerySet[models.Model],
        triples: list[Triple],
        update: Update,
        returning: tuple[object, ...] | None,
    ) -> Any:
        """Update the row if the written fields still have the values that were read.

        Args:
            base: a query set of the table's rows, which only this call uses.
            triples: all fields of the save, with the values that their `pre_save` returned.
            update: function that writes some of the triples to the row selected by a query set derived from `base`.
            returning: the list of fields to return, as Django 6.0 and later pass it; None if `update` must be called
                instead of sending an UPDATE directly.

        Returns:
            The result of `update`; None if nothing has changed, so that nothing was written.

        Raises:
            StaleObject: a policy refuses, or the row is gone.
        """
        if self.snapshot is None:
            self.wrote = {field.attname: value for field, _, value in triples}
            return update(base, triples)
        django = update
        writes = self._writes(self.snapshot, {field.attname: mine for field, _, mine in triples})
        if not writes:
            return None
        checked = [
            (column_of(self.plan, write.field.attname, self.using), write) for write in writes if write.checked
        ]
        comparable = all(column.comparable for column, _ in checked)
        if comparable:
            conditions = [
                (column, write.mine if write.field.attname in self.plan.fences else thaw_held(write.kept))
                for column, write in checked
            ]
            if returning is not None:
                # The same as `update`, without one more query set to find the row by its key.
                update = partial(self._send, returning)
                keys = key_fields(self.model._meta)
                conditions += [
                    (column_of(self.plan, key.attname, self.using), getattr(self.instance, key.attname))
                    for key in keys
                ]
            if conditions:
                base.query.where.add(StillAsRead(conditions), AND)
            answer = self._write(base, writes, update)
            if answer:
                return answer
        return self._update_locked(self.model._base_manager.using(self.using), writes, django, tried=comparable)

    def _send(self, returning: tuple[object, ...], base: Any, triples: list[Triple]) -> Any:
        answer = base._update(triples, *returning)
        return answer if returning else answer > 0

    def note(self) -> None:
        """Store the row's values after the save in the snapshot, in the scope of the transaction, if any."""
        instance, meta, plan = self.instance, self.model._meta, self.plan
        computed = [attname for attname, value in self.wrote.items() if is_expression(value)]
        # Django 6.0 and later set the attribute to the computed value, or defer it.
        late = [each for each in computed if VERSION < (6,) or is_expression(vars(instance).get(each))]
        asked = [*self.adapted(self.wrote), *late]
        found: dict[str, object] = {}
        if asked:
            rows = self.model._base_manager.using(self.using).filter(pk=getattr(instance, meta.pk.attname))
            found = rows.values(*asked).first() or {}
        for attname in late:
            setattr(instance, attname, found.get(attname))
        for attname in computed:
            self.wrote[attname] = vars(instance).get(attname, MISSING)
        kept = of_values(plan, self.wrote)
        for attname in plan.converting and plan.converting.intersection(self.wrote):
            if not same(plan.by_attname[attname], vars(instance).get(attname), self.wrote[attname]):
                kept[attname] = Adapted(freeze(vars(instance).get(attname)), kept[attname])
        for attname, value in found.items():
            field = plan.by_attname[attname]
            if not same(field, self.wrote[attname], value):
                kept[attname] = Adapted(kept[attname], kept_of(field, value))
        keys = {field.attname: vars(instance).get(field.attname, MISSING) for field in key_fields(meta)}
        snapshot = snapshot_of(instance)
        if snapshot is None or not snapshot.is_of(instance, meta, self.using, unknown=True):
            snapshot = Snapshot(self.using, {})
        vars(instance)[KEY] = snapshot.with_written(
            self.using, of_values(plan, keys) | kept, scope_of(connections[self.using])
        )
        vars(instance)[WRITTEN] = vars(instance).get(WRITTEN, frozenset()) | {
            plan.by_attname[attname].name for attname in self.wrote
        }

    def _write(self, base: models.QuerySet[models.Model], writes: list[FieldWrite], update: Update) -> Any:
        self.wrote = {write.field.attname: write.mine for write in writes if write.mine is not MISSING}
        return update(base, [(self.plan.by_attname[name], None, value) for name, value in self.wrote.items()])

    def _writes(self, snapshot: Snapshot, values: Mapping[str, object]) -> list[FieldWrite]:
        """Return the fields that have changed since they were read, and the fences to check."""
        plan = self.plan
        fenced = vars(self.instance).get(_FENCED, ())
        mine_now = [*changed(self.instance, plan, snapshot, values)]
        mates = {mate for attname in mine_now for mate in plan.together.get(attname, ())} if plan.together else ()
        writes = []
        for attname in dict.fromkeys([*mine_now, *fenced, *mates]):
            kept, mine = snapshot.values.get(attname, MISSING), values.get(attname, MISSING)
            if attname in mates and attname not in mine_now and plan.policies[attname] is not LAST_WINS:
                if kept is not MISSING:
                    writes.append(FieldWrite(plan.by_attname[attname], kept, MISSING, True))
                continue
            if mine is MISSING:
                continue
            if attname in plan.fences and kept is not MISSING:
                keep_fenced(self.instance, attname)
            # A field that was never read has no value to compare with; an expression overwrites nothing.
            comparable = kept is not MISSING and not is_expression(mine)
            checked = comparable and (
                attname in plan.fences or not (plan.policies[attname] is LAST_WINS or self._computed(attname, mine))
            )
            writes.append(FieldWrite(plan.by_attname[attname], kept, mine, checked))
        return writes

    def _computed(self, attname: str, mine: object) -> bool:
        """Return True if the save has computed a value, and the program has not set the attribute."""
        if attname in self.plan.converting:
            return attname not in self.touched
        return attname not in self.plan.named and self._set_by_save(attname) and reads_clock(mine)

    def _set_by_save(self, attname: str) -> bool:
        """Return True if the model's own `save()`, or a `pre_save` receiver, has set an attribute."""
        data = vars(self.instance)
        return FROM in data and data[FROM].get(attname, MISSING) is not data.get(attname, MISSING)

    def _update_locked(
        self, base: models.QuerySet[models.Model], writes: list[FieldWrite], update: Update, tried: bool
    ) -> Any:
        """Lock the row, compare it in Python, and update it if the policies allow.

        Args:
            tried: True if an UPDATE has found no row before; on SQLite this has locked the database if a transaction
                was open.
        """
        connection = connections[self.using]
        locks = not (tried and connection.in_atomic_block)
        answer = None
        refused: dict[str, FieldConflict] = {}
        with transaction.atomic(using=self.using, savepoint=False):
            row = base.filter(pk=getattr(self.instance, base.model._meta.pk.attname))
            theirs = locked_values(row, [write.field for write in writes], connection, locks)
            if theirs is not None:
                final, refused = self._judged(writes, theirs)
                if not refused:
                    for write, wanted in zip(final, writes, strict=True):
                        if write.mine is not wanted.mine:
                            setattr(self.instance, write.field.attname, write.mine)
                    answer = self._write(base, final, update)
        if not answer:
            # Raised after the atomic block: an exception that leaves the block would break the transaction.
            raise self._refusal(refused)
        return answer

    def _judged(
        self, writes: list[FieldWrite], theirs: Sequence[object]
    ) -> tuple[list[FieldWrite], dict[str, FieldConflict]]:
        """Return the values to write, and the conflicts that are refused."""
        final: list[FieldWrite] = []
        refused: dict[str, FieldConflict] = {}
        for write, their in zip(writes, theirs, strict=True):
            try:
                mates = self.plan.together.get(write.field.attname, ())
                whole = not any(each.field.attname in mates and each.mine is not MISSING for each in writes)
                final.append(write._replace(mine=self._decided(write, their, whole)))
            except CannotMerge:
                mine = getattr(self.instance, write.field.attname) if write.mine is MISSING else write.mine
                refused[write.field.name] = FieldConflict(thaw(write.kept), mine, their)
        return final, refused

    def _decided(self, write: FieldWrite, theirs: object, whole: bool) -> Any:
        """Return the value to write.

        Args:
            whole: False if other columns of the group are written too, so that this column can't be merged.
        """
        field, mine = write.field, write.mine
        policy = self.plan.policies[field.attname]
        if not write.checked:
            return mine
        if field.attname in self.plan.fences:
            if theirs is not None and theirs > mine:
                raise CannotMerge("a later holder has written")
            return mine
        # Equal new values are a conflict too: two writers that each count one book write the same number.
        if same(field, theirs, thaw_held(write.kept), ordered=False):
            return mine
        if policy is REFUSE or policy is LAST_WINS or mine is MISSING or not whole:
            raise CannotMerge("it is refused")
        return policy(thaw(write.kept), mine, theirs)

    def _refusal(self, refused: dict[str, FieldConflict]) -> StaleObject:
        fields = [field for field in self.plan.fields if field.name in refused]
        late = next((field for field in fields if field.attname in self.plan.fences), None)
        if late is None:
            own = [field.name for field in fields if self._set_by_save(field.attname)]
            return StaleObject(self.instance, refused, deleted=not refused, set_by_save=own)
        error: StaleObject = late.refusal(self.instance, refused[late.name])
        return error
