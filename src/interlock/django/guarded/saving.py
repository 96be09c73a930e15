"""One save of one table of a guarded instance."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from django.db import connections, router, transaction
from django.db.models import F
from django.db.models.sql.where import AND

from interlock.django.guarded.condition import Column, StillAsRead
from interlock.django.guarded.errors import CannotMerge, Conflict, StaleObject
from interlock.django.guarded.plan import Plan, key_fields
from interlock.django.guarded.policies import LAST_WINS, REFUSE
from interlock.django.guarded.snapshot import MISSING, Snapshot
from interlock.django.guarded.values import IMMUTABLE, is_expression, same, thaw

Triple = tuple[Any, Any, Any]
"""A field, None and a value: what Django gives to an UPDATE."""

Update = Callable[[Any, list[Triple]], Any]
"""Django's own `_do_update` of a query set and values; its answer is true if a row matched."""


class Write(NamedTuple):
    """A field that a save writes.

    Attributes:
        original: the value that was read.
        mine: the value to be written.
        checked: whether the column must still have the original.
        merged: whether `mine` is what a policy has made of it.
    """

    field: Any
    original: Any
    mine: Any
    checked: bool
    merged: bool = False

    @property
    def triple(self) -> Triple:
        """The field and the value for an UPDATE."""
        return (self.field, None, self.mine)


SAVING: Final = "_guarded_saving"
"""Where an instance keeps the save of it that is under way."""

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
    """

    __slots__ = ("before", "instance", "plan", "snapshot", "using", "wrote")

    def __init__(self, instance: Any, plan: Plan, snapshot: Snapshot | None, using: str) -> None:
        self.instance = instance
        self.plan = plan
        self.snapshot = snapshot
        self.using = using
        self.wrote: list[Any] | None = None
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
            return update(base, values)
        writes = self._writes(self.snapshot, values)
        if not writes:
            self.wrote = []
            return None
        terms = self._terms(writes)
        if terms is None:
            return self._update_locked(base, writes, update, tried=False)
        answer = self._send(base, writes, terms, update, returning)
        if not answer:
            return self._update_locked(base.model._base_manager.using(self.using), writes, update, tried=True)
        self.wrote = [write.field for write in writes]
        return answer

    def _send(self, base: Any, writes: list[Write], terms: list[Any], update: Update, returning: Any) -> Any:
        """Send the one UPDATE."""
        triples = [write.triple for write in writes]
        if returning is None:
            if terms:
                base.query.where.add(StillAsRead(terms), AND)
            return update(base, triples)
        # What `update` does, without building a query set more to find the row by its key.
        data = vars(self.instance)
        found = key_fields(base.model._meta)
        keys: list[Any] = [(self.plan.column(field, self.using), data[field.attname]) for field in found]
        base.query.where.add(StillAsRead(keys + terms), AND)
        answer = base._update(triples, *returning)
        return answer if returning else answer > 0

    def _terms(self, writes: list[Write]) -> list[tuple[Column, Any]] | None:
        """Return what must still be as it was read; None if a database can't be asked that."""
        terms = []
        for field, original, mine, checked, _ in writes:
            if checked:
                column = self.plan.column(field, self.using)
                if column is None:
                    return None
                terms.append((column, mine if field.attname in self.plan.fences else original))
        return terms

    def _writes(self, snapshot: Snapshot, values: list[Triple]) -> list[Write]:
        """Return what has changed since it was read."""
        known = snapshot.values
        fenced = vars(self.instance).get(_FENCED, ())
        writes = []
        for field, _, mine in values:
            attname = field.attname
            kept = known.get(attname, MISSING)
            if kept is MISSING:
                # Set without having been read: there is nothing to compare with.
                writes.append(Write(field, None, mine, checked=False))
                continue
            if attname not in fenced:
                kind = type(mine)
                # As most are; `same` would say so too.
                if (kept == mine) if kind is type(kept) and kind in IMMUTABLE else same(field, thaw(kept), mine):
                    continue
            original = thaw(kept)
            if attname in self.plan.fences:
                keep_fenced(self.instance, attname)
            blind = is_expression(mine) or is_expression(original)
            writes.append(Write(field, original, mine, checked=not blind and self._is_checked(field, mine)))
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

    def _update_locked(self, base: Any, writes: list[Write], update: Update, tried: bool) -> Any:
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
            raise self._refusal(writes, refused)
        return answer

    def _write(self, base: Any, writes: list[Write], update: Update) -> Any:
        for write in writes:
            if write.merged:
                setattr(self.instance, write.field.attname, write.mine)
        self.wrote = [write.field for write in writes]
        return update(base, [write.triple for write in writes])

    def _judged(self, writes: list[Write], theirs: Sequence[Any]) -> tuple[list[Write], dict[str, Conflict]]:
        """Return what is to be written, and the conflicts that are refused."""
        final: list[Write] = []
        refused: dict[str, Conflict] = {}
        for write, their in zip(writes, theirs, strict=True):
            conflict = Conflict(write.original, write.mine, their)
            try:
                decided = self._decided(write, conflict)
            except CannotMerge:
                refused[write.field.name] = conflict
            else:
                merged = decided is not write.mine
                final.append(Write(write.field, write.original, decided, write.checked, merged))
        return final, refused

    def _decided(self, write: Write, conflict: Conflict) -> Any:
        field = write.field
        if not write.checked:
            return write.mine
        if field.attname in self.plan.fences:
            if conflict.theirs is not None and conflict.theirs > write.mine:
                raise CannotMerge("a later holder has written")
            return write.mine
        # That both want the same is no agreement: two that count one book each both want the next number.
        if same(field, conflict.theirs, write.original, ordered=False):
            return write.mine
        policy = self.plan.policies[field.attname]
        if policy is REFUSE or policy is LAST_WINS:
            raise CannotMerge("it is refused")
        return policy(conflict.original, conflict.mine, conflict.theirs)

    def _refusal(self, writes: list[Write], refused: dict[str, Conflict]) -> StaleObject:
        for write in writes:
            if write.field.name in refused and write.field.attname in self.plan.fences:
                error: StaleObject = write.field.refusal(self.instance, refused[write.field.name])
                return error
        return StaleObject(self.instance, refused, deleted=not refused)


def locked_values(rows: Any, fields: list[Any], connection: Any, locks: bool = True) -> Sequence[Any] | None:
    """Lock a row until the end of the transaction, and return the values of some of its fields.

    Args:
        rows: a query set of that one row.
        fields: of the model of `rows`.
        locks: False if all of a database without row locks is locked already.

    Returns:
        The values; None if there is no such row.
    """
    if connection.features.has_select_for_update:
        rows = rows.select_for_update()
    elif locks:
        # SQLite: any UPDATE locks all of the database, and waits its turn, which a SELECT before it would prevent.
        rows.update(**{each.name: F(each.name) for each in _idle_fields(rows.model._meta)})
    found: list[Sequence[Any]] = list(rows.values_list("pk", *(field.attname for field in fields)))
    return found[0][1:] if found else None


def _idle_fields(meta: Any) -> list[Any]:
    """Return a field of a table that can be set to itself: the key, unless it is made of several."""
    keys = key_fields(meta)
    return keys if len(keys) == 1 else [each for each in meta.local_concrete_fields if each not in keys][:1]


def knows_row(snapshot: Snapshot, instance: Any, meta: Any, using: str) -> bool:
    """True if a snapshot is of the very row of a table that an instance would be saved to."""
    known = all(field.attname in snapshot.values for field in key_fields(meta))
    return known and may_be_of(snapshot, instance, meta, using)


def may_be_of(snapshot: Snapshot, instance: Any, meta: Any, using: str) -> bool:
    """True unless a snapshot is of another database, or of another row of a table."""
    data = vars(instance)
    known = snapshot.values
    return is_of_database(snapshot, instance, using) and all(
        same(field, thaw(known[field.attname]), data.get(field.attname))
        for field in key_fields(meta)
        if field.attname in known
    )


def is_of_database(snapshot: Snapshot, instance: Any, using: str) -> bool:
    """True if a snapshot is of the database of an alias.

    What was read from a replica is of the database to which the routers send the instance's writes.
    """
    if snapshot.db == using:
        return True
    model = type(instance)
    return using in (router.db_for_write(model, instance=instance), router.db_for_read(model, instance=instance))
