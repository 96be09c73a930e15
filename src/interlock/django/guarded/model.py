"""The mixin that makes a model guarded, and functions on a guarded instance: what a save would write, its state."""

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Context, Decimal
from threading import get_ident
from types import MappingProxyType
from typing import Any, ClassVar, Self, cast

from django.core.checks import Error
from django.db import connections, models, router, transaction
from django.db.models.base import ModelBase
from django.db.models.options import Options
from django.utils.crypto import salted_hmac
from django.utils.encoding import force_str

from interlock.django.guarded.conflicts import OTHERS, FieldConflict, OnStale, Outcome, StaleObject, policies_of
from interlock.django.guarded.model_fields import ModelPlan, declared_groups, key_fields, plan_of
from interlock.django.guarded.saving import CALLED, FROM, SAVING, WRITTEN, TableSave, Triple, changed, locked_values
from interlock.django.guarded.snapshot import KEY, MISSING, Snapshot, of_row, of_values, snapshot_of
from interlock.django.guarded.values import AnyField, prepared, same, thaw, thaw_held
from interlock.django.transactions import scope_of

_GUARDS = "_interlock_guards"

_refreshing: dict[int, list[models.Model]] = {}
"""The instances that `refresh_from_db` has read, by thread."""


def remembering(make: Any) -> Any:
    """Return a `from_db` that calls another one, and stores the read values in the instance's snapshot."""

    @functools.wraps(make)
    def from_db(
        cls: Any, db: str | None, field_names: Collection[str], values: Sequence[object], **options: object
    ) -> object:
        # Queries read thousands of rows, so each call costs: no `plan_of`, and no ** of an empty dict.
        plan = cls._guarded_plan
        if plan is None or plan.fields is not cls._meta.concrete_fields:
            plan = plan_of(cls)
        row = of_row(plan, db, field_names, values)  # before the model's `__init__` can change mutable values
        new = make(cls, db, field_names, values, **options) if options else make(cls, db, field_names, values)
        setattr(new, KEY, row)
        if _refreshing and get_ident() in _refreshing:
            _refreshing[get_ident()].append(new)
        if options and getattr(options.get("fetch_mode"), "track_peers", False):
            # Other fetch modes set deferred fields on many instances together, without a call on each instance.
            new._state.fetch_mode = models.FETCH_ONE
        return new

    setattr(from_db, _GUARDS, True)
    return classmethod(cast(Any, from_db))


def recording(cls: Any) -> Any:
    """Return a `save` that records the attributes and then calls the `save` of the class or of its bases."""
    own = vars(cls).get("save")

    @functools.wraps(own or cls.save)
    def save(self: object, *args: object, **kwargs: object) -> object:
        data, begins = vars(self), CALLED not in vars(self)
        if begins:
            data[CALLED] = dict(data)
        try:
            return (own or super(cls, type(self)).save)(self, *args, **kwargs)
        finally:
            if begins:
                data.pop(CALLED, None)

    setattr(save, _GUARDS, True)
    return save


class _Options:
    """The `_meta` of `Guarded`; until a subclass has its own `_meta`, that of its other bases."""

    def __get__(self, instance: object, owner: object) -> object:
        return _options() if owner is Guarded else super(Guarded, owner)._meta  # type: ignore[misc]


@functools.cache
def _options() -> "Options[models.Model]":
    """Return the options of `Guarded`, created at first use because they need the settings."""
    made: Options[Any] = Options(None, "interlock")
    made.abstract, made.model, made.object_name, made.model_name = True, Guarded, "Guarded", "guarded"
    return made


def _abstract(name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> object:
    """Create an abstract model that can be imported before the settings and the apps are ready."""
    # It must be a model: migrations name other base classes, and would then need interlock to run.
    return type.__new__(ModelBase, name, bases, {**namespace, "_meta": _Options()})


class Guarded(models.Model, metaclass=_abstract):  # type: ignore[metaclass] # a function: the class stays a ModelBase
    """A mixin that keeps a model's `save()` from overwriting what another writer has changed.

    `class Book(Guarded, models.Model)`: `save()` writes only the fields that have changed since they were read, in
    one UPDATE that finds its row only if the written fields still have the values that were read. Otherwise
    `on_stale` decides.

    Attributes:
        on_stale: `REFUSE` (the default: `StaleObject` is raised), `LAST_WINS`, a function of (original, mine, theirs)
            that returns the value to save, or a dictionary of these by the names of fields, with "*" for all other
            fields.
        guarded_together: groups of fields, each group one value, such as `[("lat", "lon")]`. A save that changes one
            field of a group is refused if another writer has changed another field of the group.
    """

    on_stale: ClassVar[OnStale] = MappingProxyType({})
    guarded_together: ClassVar[Sequence[Sequence[str]]] = ()
    _guarded_plan: ClassVar[ModelPlan | None] = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        # `Model.from_db`, or the class's own, which need not call those of its bases.
        if not hasattr(cls.from_db, _GUARDS):
            cls.from_db = remembering(cls.from_db.__func__)  # type: ignore[method-assign, attr-defined]
        save: object = cls.save
        if save is not models.Model.save and not hasattr(save, _GUARDS):
            cls.save = recording(cls)  # type: ignore[method-assign]

    @classmethod
    def check(cls, **kwargs: object) -> Any:
        """Return the findings of Django's system check on the model, on `on_stale` and on `guarded_together`."""
        return [*super().check(**kwargs), *problems_of_policies(cls), *problems_of_groups(cls)]

    def refresh_from_db(
        self,
        using: str | None = None,
        fields: Iterable[str] | None = None,
        from_queryset: models.QuerySet[Self] | None = None,
    ) -> None:
        """Read fields again, and store their values in the snapshot; otherwise as Django's own."""
        plan, data = plan_of(type(self)), vars(self)
        names = None if fields is None else list(fields)
        known = snapshot_of(self)
        named = using or getattr(from_queryset, "db", None)
        if known is not None and named is not None and not known.is_of_database(self, named):
            known = None
        more: Any = {} if from_queryset is None else {"from_queryset": from_queryset}
        thread, read = get_ident(), list[models.Model]()
        outer, _refreshing[thread] = _refreshing.get(thread), read
        try:
            super().refresh_from_db(using=using, fields=names, **more)
        finally:
            if outer is None:
                del _refreshing[thread]
            else:
                _refreshing[thread] = outer
        # Keep the row: Django has copied the values that descriptors return, not those of the columns.
        rows = [
            snapshot_of(each)
            for each in read
            if each.pk == self.pk and isinstance(each, type(self)._meta.concrete_model or ())
        ]
        fresh = of_values(plan, {attname: data[attname] for attname in plan.keys if attname in data}) | (
            rows[-1].values if rows and rows[-1] else {}
        )
        data[KEY] = (known or Snapshot(None, {})).with_read(self._state.db, fresh)

    def save_base(
        self,
        raw: bool = False,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Save; otherwise as Django's own.

        Raises:
            StaleObject: another writer has changed a field that this save writes; nothing was written.
        """
        using = using or router.db_for_write(type(self), instance=self)
        connection = transaction.get_connection(using)
        broken = connection.needs_rollback
        data = vars(self)
        data.pop(WRITTEN, None)
        before, data[FROM] = data.get(FROM), data.pop(CALLED, None) or dict(data)
        try:
            super().save_base(raw, force_insert, force_update, using, update_fields)
        except StaleObject as stale:
            # Django marks an atomic block as broken if an exception leaves a save in it. If this save has raised the
            # exception and has written nothing, the block stays usable for code that catches it.
            if stale.instance is self and WRITTEN not in data and not broken and connection.in_atomic_block:
                transaction.set_rollback(False, using)
            raise
        finally:
            data[FROM] = before
            if before is None:
                del data[FROM]

    save_base.alters_data = True  # type: ignore[attr-defined]

    def _save_table(
        self,
        raw: bool = False,
        cls: Any = None,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: Any = None,
        update_fields: Iterable[str] | None = None,
    ) -> object:
        django: Any = super()._save_table  # type: ignore[misc]
        saving = vars(self)[SAVING] = TableSave(self, plan_of(type(self)), cls, using, raw)
        try:  # values that are read back are read in the transaction that writes them
            with transaction.atomic(using=using, savepoint=False) if saving.adapted(vars(self)) else nullcontext():
                updated = django(raw, cls, force_insert, force_update, using, update_fields)
                if not updated:
                    saving.wrote = saving.values()
                if saving.wrote:
                    saving.note()
        finally:
            del vars(self)[SAVING]
        return updated

    def _do_update(
        self,
        base_qs: models.QuerySet[models.Model],
        using: str | None,
        pk_val: object,
        values: Collection[Triple],
        update_fields: Iterable[str] | None,
        forced_update: bool,
        *more: object,
    ) -> Any:
        django: Any = super()._do_update

        def update(rows: models.QuerySet[models.Model], some: Collection[Triple]) -> object:
            return django(rows, using, pk_val, some, update_fields, forced_update, *more)

        if not values:
            return update(base_qs, values)
        # Call a base class's own `_do_update`; without one, a shorter way does the same as Django's.
        plain = django.__func__ is models.Model._do_update and not base_qs.model._meta.select_on_save
        answer = vars(self)[SAVING].update(base_qs, values, update, more if plain else None)
        if answer is not None:
            return answer
        if forced_update and update_fields is None:
            return update(base_qs, [])
        if not more:
            return True
        # Django 6.0 and later expect a returned row; return the instance's own values.
        names, data = [field.attname for field in cast(Any, more[0])], vars(self)
        return [tuple(data[name] for name in names) if data.keys() >= set(names) else ()]

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the row, like Django; a later save inserts a new row, unless the deletion is rolled back."""
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        answer = super().delete(*args, **kwargs)
        data, snapshot = vars(self), snapshot_of(self)
        # Django sets the key to None if the row is gone; a soft delete keeps both.
        if snapshot is not None and all(
            data.get(field.attname) is None for field in key_fields(cast(Any, self._meta))
        ):
            data[KEY] = snapshot.with_written(
                using, dict.fromkeys(snapshot.values, MISSING), scope_of(connections[using])
            )
        return answer

    delete.alters_data = True  # type: ignore[attr-defined]


def problems_of_policies(model: type[models.Model]) -> Iterator[Error]:
    """Yield the errors in a model's `on_stale`."""
    names = {field.name for field in model._meta.concrete_fields if not field.primary_key}
    for name, policy in policies_of(model).items():
        if name != OTHERS and name not in names:
            yield Error(
                f"on_stale names {name!r}, which is not a field that a save of the model writes.",
                hint=f"Its fields are {', '.join(sorted(names))}; '*' means all other fields.",
                obj=model,
                id="interlock.E101",
            )
        if not isinstance(policy, Outcome) and not callable(policy):
            yield Error(
                f"on_stale gives {name!r} the value {policy!r}, which is not a policy.",
                hint="Use REFUSE, LAST_WINS or a function of (original, mine, theirs).",
                obj=model,
                id="interlock.E102",
            )


def problems_of_groups(model: type[models.Model]) -> Iterator[Error]:
    """Yield the errors in a model's `guarded_together`."""
    plan = plan_of(model)
    for group in declared_groups(model):
        fields = [field for field in plan.fields if field.name in group]
        if len(fields) < max(2, len(group)) or len({field.model for field in fields}) > 1:
            yield Error(
                f"guarded_together has {group!r}, but these are not fields of one table of the model.",
                hint='Name at least two fields of one table, such as guarded_together = [("lat", "lon")].',
                obj=model,
                id="interlock.E103",
            )


def _explained(cls: type) -> list[type]:
    """Return the order of a model's base classes, like `type.mro`; explain the error if `Guarded` is a base."""
    try:
        return type.mro(cls)
    except TypeError as error:
        if Guarded not in cls.__bases__:
            raise
        raise TypeError(
            f"{cls.__name__} cannot be created: Guarded must come before the other base classes, and only once. Put "
            f"Guarded before models.Model; or omit it if another base class is guarded. ({error})"
        ) from error


# This is the only hook that Python calls before it refuses the order of the bases.
ModelBase.mro = _explained  # type: ignore[method-assign, assignment]

_EXACT = Context(prec=1000)


def changes(instance: Guarded) -> dict[str, tuple[object, object]]:
    """Return what a save would write now: (original, mine) by the name of the field.

    Not included are fields that were never read, although a save would write them, and fields that compute their
    value during the save, as with `auto_now`.
    """
    snapshot, plan = snapshot_of(instance), plan_of(type(instance))
    if snapshot is None:
        return {}
    mine = {
        attname: getattr(instance, attname)
        for attname, field in plan.by_attname.items()
        if attname in snapshot.values and attname in vars(instance)
        if attname not in plan.computing and not getattr(field, "generated", False)
    }
    return {
        plan.by_attname[attname].name: (thaw(snapshot.values[attname]), mine[attname])
        for attname in changed(instance, plan, snapshot, mine)
    }


def written(instance: Guarded) -> frozenset[str]:
    """Return the names of the fields that the last save wrote; also for use in a `post_save` receiver.

    The signal's own `update_fields` are those that the caller passed to `save()`, as Django documents it.
    """
    found: frozenset[str] = vars(instance).get(WRITTEN, frozenset())
    return found


def verify(instance: Guarded) -> None:
    """Lock the row of an instance, and check that it still has the values that were read; call it in a transaction.

    `LAST_WINS` fields, and fields that compute their values, are not checked.

    Raises:
        StaleObject: the row has other values, or is gone.
        TransactionManagementError: there is no transaction.
        ValueError: the instance was never read or saved.
    """
    snapshot = snapshot_of(instance)
    if snapshot is None:
        raise ValueError(f"{instance._meta.label} cannot be verified: it was neither read nor saved before.")
    using = router.db_for_write(type(instance), instance=instance)
    connection = connections[using]
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "verify() locks the row until the end of a transaction. Begin a transaction first."
        )
    rows = type(instance)._base_manager.using(using).filter(pk=instance.pk)
    fields = [field for field in plan_of(type(instance)).checked() if field.attname in snapshot.values]
    values = locked_values(rows, fields, connection)
    if values is None:
        raise StaleObject(instance, deleted=True)
    originals = [thaw_held(snapshot.values[field.attname]) for field in fields]
    found = {
        field.name: FieldConflict(original, getattr(instance, field.attname), theirs)
        for field, original, theirs in zip(fields, originals, values, strict=True)
        if not same(field, original, theirs, ordered=False)
    }
    if found:
        raise StaleObject(instance, found)


def state_tag(instance: Guarded, fields: Iterable[str] | None = None) -> str:
    """Return a short text that identifies the state in which an instance was last read or saved.

    Two instances of a row have the same tag exactly if all their guarded fields are equal; `LAST_WINS` fields, and
    fields that compute their values, don't count. The tag is keyed with SECRET_KEY, so that values can't be found out
    by trying.

    Args:
        instance: the guarded instance.
        fields: the names of the fields that count; None for all guarded fields.
    """
    plan = plan_of(type(instance))
    wanted = None if fields is None else set(fields)
    if wanted is not None:
        wanted |= {
            plan.by_attname[mate].name
            for each in plan.fields
            if each.name in wanted
            for mate in plan.together.get(each.attname, ())
        }
    counted = [field for field in plan.checked() if wanted is None or field.name in wanted]
    for field in counted:
        getattr(instance, field.attname)  # loads a deferred field
    snapshot = snapshot_of(instance)
    known = snapshot.values if snapshot is not None else {}
    model: Any = instance._meta.concrete_model
    texts = {field.attname: _text(field, thaw_held(known.get(field.attname))) for field in counted}
    # With the length, no other split of the text gives the same tag.
    parts = [f"{attname} {len(text)} {text}" for attname, text in texts.items()]
    whole = "\n".join([f"{model._meta.label_lower} {instance.pk!r}", *parts])
    return salted_hmac("interlock.state_tag", whole, algorithm="sha256").hexdigest()[:32]


def _text(field: AnyField, value: object) -> str:
    """Return a text that is the same for all values that the database takes for equal."""
    value = prepared(field, value, ordered=False)
    if isinstance(value, Decimal) and value.is_finite():
        places = getattr(field, "decimal_places", None)
        value = value if places is None else value.quantize(Decimal(1).scaleb(-places), context=_EXACT)
    elif isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    elif isinstance(value, bytes):
        return value.hex()
    return "null" if value is None else "=" + force_str(value)
