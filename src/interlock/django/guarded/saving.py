"""One save of one table of a guarded instance."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from django.db import connections, transaction
from django.db.models.sql.where import AND

from interlock.django.guarded.adapting import held_values
from interlock.django.guarded.condition import Column, StillAsRead
from interlock.django.guarded.errors import CannotMerge, Conflict, StaleObject
from interlock.django.guarded.plan import ModelPlan, key_fields
from interlock.django.guarded.policies import LAST_WINS, REFUSE
from interlock.django.guarded.rows import locked_values
from interlock.django.guarded.snapshot import MISSING, Snapshot
from interlock.django.guarded.values import IMMUTABLE, Adapted, is_expression, same, thaw, thaw_held

Triple = tuple[Any, Any, Any]
"""A field, None and a value: what Django gives to an UPDATE."""

Update = Callable[[Any, list[Triple]], Any]
"""Django's own `_do_update` of a query set and values; its answer is true if a row matched."""


class FieldWrite(NamedTuple):
    """A field that a save writes.

    Attributes:
        original: the value that was read, or saved.
        held: what stood in the row then.
        mine: the value to be written.
        checked: whether the column must still have the original.
        merged: whether `mine` is what a policy has made of it.
    """

    field: Any
    original: Any
    held: Any
    mine: Any
    checked: bool
    merged: bool = False

    @property
    def triple(self) -> Triple:
        """The field and the value for an UPDATE."""
        return (self.field, None, self.mine)


SAVING: Final = "_guarded_saving"
"""Where an instance keeps the save of it that is under way."""

REFUSED: Final = "_guarded_refused"
"""Where an instance keeps the error of its save that is under way."""

_FENCED: Final = "_guarded_fences"


def is_guarded_save(instance: Any) -> bool:
    """True while a guarded instance is being saved."""
    return SAVING in vars(instance)


def keep_fenced(instance: Any, attname: str) -> None:
    """Have each save of an instance from now on refused if the row has a higher fence than its attribute."""
    data = vars(instance)
    data[_FENCED] = {*data.get(_FENCED, ()), attname}


class Saving:
    """The save of one table that is under way.

    Attributes:
        wrote: the fields that its UPDATE has written; None if there was none.
        held: what stands in the row of fields that it holds otherwise than they were given.
        refusal: the error that it has raised.
    """

    __slots__ = ("before", "held", "instance", "plan", "refusal", "snapshot", "using", "wrote")

    def __init__(self, instance: Any, plan: ModelPlan, snapshot: Snapshot | None, using: str) -> None:
        self.instance = instance
        self.plan = plan
        self.snapshot = snapshot
        self.using = using
        self.wrote: list[Any] | None = None
        self.held: dict[str, Any] = {}
        self.refusal: StaleObject | None = None
        data = vars(instance)
        self.before = {attname: data[attname] for attname in plan.computing if attname in data}

    def update(self, base: Any, values: list[Triple], update: Update, returning: tuple[Any, ...] | None) -> Any:
        """Update the row if what is written still stands there as it was read.

        Args:
            base: a query set of the table's rows, not shared.
            values: all fields that the save concerns, as their `pre_save` gave them.
            update: writes some of them to the row, which it finds in a query set of base's kind.
            returning: what Django gives from 6.0 on: a list of the fields to be returned; None if `update` must be
                asked rather than the database.

        Returns:
            What `update` answers; None if nothing has changed, and so nothing was written.

        Raises:
            StaleObject: a policy refuses; or the row is gone.
        """
        if self.snapshot is None:
            self.wrote = [field for field, _, _ in values]
            return self._read_back(base.model, values, partial(update, base, values))
        writes = self._writes(self.snapshot, values)
        if not writes:
            self.wrote = []
            return None
        conditions = self._conditions(writes)
        if conditions is None:
            return self._update_locked(base, writes, update, tried=False)
        triples = [write.triple for write in writes]
        send = partial(self._send, base, triples, conditions, update, returning)
        answer = self._read_back(base.model, triples, send)
        if not answer:
            return self._update_locked(base.model._base_manager.using(self.using), writes, update, tried=True)
        self.wrote = [write.field for write in writes]
        return answer

    def _read_back(self, model: Any, values: list[Triple], write: Callable[[], Any]) -> Any:
        """Write, and in the same transaction read what the row holds otherwise than it was given."""
        fields = [field for field, _, value in values if self.plan.adapts(field, value, self.using)]
        if not fields:
            return write()
        with transaction.atomic(using=self.using, savepoint=False):
            answer = write()
            if answer:
                self.held = held_values(model, self.using, self.instance._get_pk_val(model._meta), fields)
        return answer

    def insert(self, model: Any, fields: Any, returning: Any, insert: Callable[[], Any]) -> Any:
        """Insert the row, as `_read_back`.

        Args:
            returning: the fields that `insert` answers with.
        """
        data = vars(self.instance)
        asked = [each for each in fields if self.plan.adapts(each, data.get(each.attname), self.using)]
        if not asked:
            return insert()
        with transaction.atomic(using=self.using, savepoint=False):
            answer = insert()
            new = {field.attname: value for field, value in zip(returning, answer[0])} if answer else {}  # noqa: B905
            key = model._meta.pk.attname
            pk = new[key] if key in new else self.instance._get_pk_val(model._meta)
            self.held = held_values(model, self.using, pk, asked)
        return answer

    def _send(self, base: Any, triples: list[Triple], conditions: list[Any], update: Update, returning: Any) -> Any:
        """Send the one UPDATE."""
        if returning is None:
            if conditions:
                base.query.where.add(StillAsRead(conditions), AND)
            return update(base, triples)
        # What `update` does, without building a query set more to find the row by its key.
        data = vars(self.instance)
        found = key_fields(base.model._meta)
        keys: list[Any] = [(self.plan.column(field, self.using), data[field.attname]) for field in found]
        base.query.where.add(StillAsRead(keys + conditions), AND)
        answer = base._update(triples, *returning)
        return answer if returning else answer > 0

    def _conditions(self, writes: list[FieldWrite]) -> list[tuple[Column, Any]] | None:
        """Return what must still be as it was read; None if a database can't be asked that."""
        conditions = []
        for field, _, held, mine, checked, _ in writes:
            if checked:
                column = self.plan.column(field, self.using)
                if column is None:
                    return None
                conditions.append((column, mine if field.attname in self.plan.fences else held))
        return conditions

    def _writes(self, snapshot: Snapshot, values: list[Triple]) -> list[FieldWrite]:
        """Return what has changed since it was read."""
        known = snapshot.values
        fenced = vars(self.instance).get(_FENCED, ())
        writes = []
        for field, _, mine in values:
            attname = field.attname
            kept = known.get(attname, MISSING)
            if kept is MISSING:
                # Set without having been read: there is nothing to compare with.
                writes.append(FieldWrite(field, None, None, mine, checked=False))
                continue
            if attname not in fenced:
                kind = type(mine)
                # As most are; `same` would say so too.
                simple = kind is type(kept) and kind in IMMUTABLE
                if kept is mine or (kept == mine if simple else _is_kept(field, kept, mine)):
                    continue
            original, held = thaw(kept), thaw_held(kept)
            if attname in self.plan.fences:
                keep_fenced(self.instance, attname)
            blind = is_expression(mine) or is_expression(original)
            writes.append(
                FieldWrite(field, original, held, mine, checked=not blind and self._is_checked(field, mine))
            )
        return writes

    def _is_checked(self, field: Any, mine: Any) -> bool:
        if field.attname in self.plan.fences:
            return True
        if self.plan.policies[field.attname] is LAST_WINS:
            return False
        if field.attname in self.before and not self.plan.is_named(field.attname):
            # Nobody has set it: the field has computed it while it was saved.
            return same(field, self.before[field.attname], mine)
        return True

    def _update_locked(self, base: Any, writes: list[FieldWrite], update: Update, tried: bool) -> Any:
        """Lock the row, compare it in Python, and update it if the policies allow.

        Args:
            tried: an UPDATE has found no row; where UPDATEs lock all of the database, it is locked if a
                transaction was open.
        """
        connection = connections[self.using]
        locks = not (tried and connection.in_atomic_block)
        answer = None
        refused: dict[str, Conflict] = {}
        with transaction.atomic(using=self.using, savepoint=False):
            row = base.filter(pk=self.instance._get_pk_val(base.model._meta))
            theirs = locked_values(row, [write.field for write in writes], connection, locks)
            if theirs is not None:
                final, refused = self._judged(writes, theirs)
                if not refused:
                    answer = self._write(base, final, update)
        if not answer:
            # Raised out here, since a block that an exception leaves can't be used any more.
            self.refusal = self._refusal(writes, refused)
            raise self.refusal
        return answer

    def _write(self, base: Any, writes: list[FieldWrite], update: Update) -> Any:
        for write in writes:
            if write.merged:
                setattr(self.instance, write.field.attname, write.mine)
        self.wrote = [write.field for write in writes]
        triples = [write.triple for write in writes]
        return self._read_back(base.model, triples, partial(update, base, triples))

    def _judged(
        self, writes: list[FieldWrite], theirs: Sequence[Any]
    ) -> tuple[list[FieldWrite], dict[str, Conflict]]:
        """Return what is to be written, and the conflicts that are refused."""
        final: list[FieldWrite] = []
        refused: dict[str, Conflict] = {}
        for write, their in zip(writes, theirs, strict=True):
            conflict = Conflict(write.original, write.mine, their)
            try:
                decided = self._decided(write, conflict)
            except CannotMerge:
                refused[write.field.name] = conflict
            else:
                merged = decided is not write.mine
                final.append(write._replace(mine=decided, merged=merged))
        return final, refused

    def _decided(self, write: FieldWrite, conflict: Conflict) -> Any:
        field = write.field
        if not write.checked:
            return write.mine
        if field.attname in self.plan.fences:
            if conflict.theirs is not None and conflict.theirs > write.mine:
                raise CannotMerge("a later holder has written")
            return write.mine
        # That both want the same is no agreement: two that count one book each both want the next number.
        if same(field, conflict.theirs, write.held, ordered=False):
            return write.mine
        policy = self.plan.policies[field.attname]
        if policy is REFUSE or policy is LAST_WINS:
            raise CannotMerge("it is refused")
        return policy(conflict.original, conflict.mine, conflict.theirs)

    def _refusal(self, writes: list[FieldWrite], refused: dict[str, Conflict]) -> StaleObject:
        for write in writes:
            if write.field.name in refused and write.field.attname in self.plan.fences:
                error: StaleObject = write.field.refusal(self.instance, refused[write.field.name])
                return error
        return StaleObject(self.instance, refused, deleted=not refused)


def _is_kept(field: Any, kept: Any, mine: Any) -> bool:
    return same(field, thaw(kept), mine) or (type(kept) is Adapted and same(field, thaw_held(kept), mine))
