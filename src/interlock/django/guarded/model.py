"""The mixin that makes a model guarded."""

import functools
import inspect
from collections.abc import Iterable
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.core.checks import Error
from django.db import connections, models, router, transaction
from django.db.models.query_utils import DeferredAttribute

from interlock.django.guarded.errors import StaleObject
from interlock.django.guarded.plan import ModelPlan, key_fields, plan_of
from interlock.django.guarded.policies import OTHERS, OnStale, Outcome, policies_of
from interlock.django.guarded.rows import is_of_database, knows_row, may_be_of
from interlock.django.guarded.saving import REFUSED, SAVING, Saving, Triple
from interlock.django.guarded.snapshot import KEY, Snapshot, of_attributes, of_row, snapshot_of
from interlock.django.guarded.undo import scope_of
from interlock.django.guarded.values import Adapted, kept_of, same

if TYPE_CHECKING:
    Base = models.Model
else:
    Base = object

_UNREAD: Any = object()
_GUARDS = "_interlock_guards"


def keep_guarded(cls: Any) -> None:
    """Have a class whose own `from_db` does without that of its bases, as in Django's documentation, guarded too."""
    found = inspect.getattr_static(cls, "from_db")
    make: Any = getattr(found, "__func__", None)
    if make is None or hasattr(make, _GUARDS):
        return

    @functools.wraps(make)
    def from_db(cls: Any, db: str | None, field_names: Any, values: Any, **options: Any) -> Any:
        new = make(cls, db, field_names, values, **options)
        if KEY not in vars(new):
            setattr(new, KEY, of_row(plan_of(type(new)), db, field_names, values))
        return new

    setattr(from_db, _GUARDS, True)
    cls.from_db = classmethod(cast(Any, from_db))


class Guarded(Base):
    """A mixin that keeps a model's `save()` from overwriting what somebody else has changed.

    `class Book(Guarded, models.Model)`: `save()` writes only the fields that have changed since they were read, in
    one UPDATE that finds its row only if the written fields still have the values that were read. Else `on_stale`
    says what is to be done.

    Attributes:
        on_stale: `REFUSE` (the default: `StaleObject` is raised), `LAST_WINS`, a function of (original, mine, theirs)
            that returns the value to be saved, or a dictionary of these by the names of fields, in which "*" stands
            for all others.
    """

    on_stale: ClassVar[OnStale] = MappingProxyType({})
    _guarded_plan: ClassVar[ModelPlan | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        keep_guarded(cls)
        order = cls.__mro__
        if models.Model in order and order.index(models.Model) < order.index(Guarded):
            raise TypeError(f"{cls.__name__} would not be guarded: Guarded must stand before its other base classes")

    @classmethod
    def check(cls, **kwargs: Any) -> Any:
        """Return what Django's system check finds in the model, and in its `on_stale`."""
        return [*super().check(**kwargs), *problems_of_policies(cls)]

    @classmethod
    def from_db(cls, db: str | None, field_names: Any, values: Any, **options: Any) -> Any:
        """Return an instance of a row, which remembers the values that it was read with."""
        # Rows are read by the thousand: each call counts, also of `plan_of`, `super`, `vars`, or with an empty **.
        plan = cls._guarded_plan
        if plan is None or plan.fields is not cls._meta.concrete_fields:
            plan = plan_of(cls)
        if plan.django is None:
            plan.django = super().from_db
        row = of_row(plan, db, field_names, values)  # before an `__init__` of the model's can change what is in it
        new = plan.django(db, field_names, values, **options) if options else plan.django(db, field_names, values)
        setattr(new, KEY, row)
        if options:
            mode = options.get("fetch_mode")
            if mode is not None and mode.track_peers:
                new._state.fetch_mode = noting(mode)
        return new

    def refresh_from_db(
        self, using: str | None = None, fields: Iterable[str] | None = None, from_queryset: Any = None
    ) -> None:
        """Read fields again, and remember their values; as Django's own."""
        names = None if fields is None else list(fields)
        known = snapshot_of(self)
        named = using or getattr(from_queryset, "_db", None)
        if known is not None and named is not None and not is_of_database(known, self, named):
            known = None
        if from_queryset is not None:
            read = self._refresh_by(using, names, from_queryset)
        else:
            before = set(vars(self))
            super().refresh_from_db(using=using, fields=names)
            read = [
                field.attname
                for field in plan_of(type(self)).fields
                if (field.attname in before if names is None else field.name in names or field.attname in names)
            ]
        data = vars(self)
        plan = plan_of(type(self))
        values = of_attributes(plan, self, [name for name in {*read, *plan.keys} if name in data])
        data[KEY] = (known or Snapshot(None, {})).with_read(self._state.db, values)

    def _refresh_by(self, using: str | None, names: list[str] | None, from_queryset: Any) -> list[str]:
        """Refresh by a query set of the caller, which may defer fields; return the attributes that it has read."""
        data = vars(self)
        plan = plan_of(type(self))
        aside = {name: data[name] for name in plan.attnames if name in data and name not in plan.keys}
        data.update(dict.fromkeys(aside, _UNREAD))
        try:
            super().refresh_from_db(using=using, fields=names, from_queryset=from_queryset)
        finally:
            unread = {name: value for name, value in aside.items() if data[name] is _UNREAD}
            data.update(unread)
        return [name for name in plan.attnames if name not in unread]

    def save_base(
        self,
        raw: bool = False,
        force_insert: Any = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Save; as Django's own.

        Raises:
            StaleObject: somebody else has changed what was to be written; nothing was.
        """
        using = using or router.db_for_write(type(self), instance=self)
        connection = transaction.get_connection(using)
        broken = connection.needs_rollback
        before = snapshot_of(self)
        if before is not None and before.written:
            vars(self)[KEY] = before = before.with_nothing_written()
        try:
            super().save_base(
                raw=raw,
                force_insert=force_insert,
                force_update=force_update,
                using=using,
                update_fields=update_fields,
            )
        except StaleObject as stale:
            # Django marks a block that an exception of a save passes as unusable. If it is of this very save, and
            # nothing was written by it, code that catches this may go on to use the block.
            own = vars(self).pop(REFUSED, None) is stale and vars(self).get(KEY) is before
            if own and not broken and connection.in_atomic_block:
                transaction.set_rollback(False, using)
            raise

    save_base.alters_data = True  # type: ignore[attr-defined]

    def _save_table(
        self,
        raw: bool = False,
        cls: Any = None,
        force_insert: Any = False,
        force_update: bool = False,
        using: Any = None,
        update_fields: Any = None,
    ) -> Any:
        plan = plan_of(type(self))
        snapshot = snapshot_of(self)
        known = snapshot is not None and not raw and knows_row(snapshot, self, cls._meta, using)
        data = vars(self)
        data[SAVING] = saving = Saving(self, plan, snapshot if known else None, using)
        try:
            updated = super()._save_table(  # type: ignore[misc]
                raw, cls, force_insert, force_update, using, update_fields
            )
        except StaleObject as stale:
            if stale is saving.refusal:
                data[REFUSED] = stale
            raise
        finally:
            del data[SAVING]
        fields = saving.wrote if updated else cls._meta.local_concrete_fields
        if fields:
            self._note_written(cls._meta, fields, using, saving.held)
        return updated

    def _do_insert(self, manager: Any, using: Any, fields: Any, returning_fields: Any, raw: Any) -> Any:
        django: Any = super()._do_insert  # type: ignore[misc]

        def insert() -> Any:
            return django(manager, using, fields, returning_fields, raw)

        saving: Saving | None = vars(self).get(SAVING)
        return insert() if saving is None else saving.insert(manager.model, fields, returning_fields, insert)

    def _note_written(self, meta: Any, fields: Iterable[Any], using: str, held: dict[str, Any]) -> None:
        """Remember what stands in the row of a table since it was saved."""
        plan = plan_of(type(self))
        data = vars(self)
        names = {field.attname for field in (*fields, *key_fields(meta))}
        snapshot = snapshot_of(self)
        if snapshot is None or not may_be_of(snapshot, self, meta, using):
            snapshot = Snapshot(using, {})
        values = of_attributes(plan, self, names)
        for attname, value in held.items():
            field = plan.by_attname[attname]
            if not same(field, data.get(attname), value):
                values[attname] = Adapted(values[attname], kept_of(field, value))
        data[KEY] = snapshot.with_written(
            using,
            values,
            frozenset(field.name for field in fields),
            scope_of(connections[using]),
        )

    def _do_update(
        self, base_qs: Any, using: Any, pk_val: Any, values: Any, update_fields: Any, forced_update: Any, *more: Any
    ) -> Any:
        django: Any = super()._do_update

        def update(rows: Any, some: list[Triple]) -> Any:
            return django(rows, using, pk_val, some, update_fields, forced_update, *more)

        saving: Saving | None = vars(self).get(SAVING)
        if saving is None or not values:
            return update(base_qs, values)
        # A base class that does more than Django's here is asked; else that is done in a shorter way.
        plain = django.__func__ is models.Model._do_update and not base_qs.model._meta.select_on_save
        answer = saving.update(base_qs, values, update, more if plain else None)
        if answer is not None:
            return answer
        if forced_update and update_fields is None:
            return update(base_qs, [])
        return _unwritten(self, more)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the row; as Django's own. Saved again, the instance makes a new one."""
        answer = super().delete(*args, **kwargs)
        vars(self).pop(KEY, None)
        return answer

    delete.alters_data = True  # type: ignore[attr-defined]


def _unwritten(instance: Any, more: tuple[Any, ...]) -> Any:
    """Return what an UPDATE that was not needed would have answered: from Django 6.0 on the columns it returns."""
    if not more:
        return True
    names = [field.attname for field in more[0]]
    return [tuple(vars(instance)[name] for name in names)] if all(name in vars(instance) for name in names) else [()]


setattr(Guarded.__dict__["from_db"].__func__, _GUARDS, True)

# The migrations of a model name its bases; this is where they shall find this one for ever.
Guarded.__module__ = "interlock.django.guarded"


def problems_of_policies(model: Any) -> list[Error]:
    """Return what is wrong with a model's `on_stale`."""
    names = {field.name for field in model._meta.concrete_fields if not field.primary_key}
    found = []
    for name, policy in policies_of(model).items():
        if name != OTHERS and name not in names:
            found.append(
                Error(
                    f"on_stale names {name!r}, which is no field of the model that a save writes.",
                    hint=f"Its fields are {', '.join(sorted(names))}; '*' stands for all that are not named.",
                    obj=model,
                    id="interlock.E101",
                )
            )
        if not isinstance(policy, Outcome) and not callable(policy):
            found.append(
                Error(
                    f"on_stale says {policy!r} of {name!r}, which is no policy.",
                    hint="Use REFUSE, LAST_WINS or a function of (original, mine, theirs).",
                    obj=model,
                    id="interlock.E102",
                )
            )
    return found


class Noting:
    """A fetch mode that does as another one, and tells the guards what was fetched.

    With `FETCH_PEERS` (Django 6.1 and later) Django sets deferred fields on many instances at once, and no method of
    theirs hears of it; without this their guard would take such a value for one that was set without being read,
    and write it unchecked.
    """

    __slots__ = ("_mode",)

    track_peers = True

    def __init__(self, mode: Any) -> None:
        self._mode = mode

    def fetch(self, fetcher: Any, instance: Any) -> None:
        """Fetch, as the other mode does."""
        if not isinstance(fetcher, DeferredAttribute):
            self._mode.fetch(fetcher, instance)
            return
        attname = fetcher.field.attname
        found = [instance, *(peer() for peer in instance._state.peers)]
        lacking = [each for each in found if each is not None and attname not in vars(each)]
        self._mode.fetch(fetcher, instance)
        for each in lacking:
            snapshot = snapshot_of(each)
            if snapshot is not None and attname in vars(each):
                values = of_attributes(plan_of(type(each)), each, [attname])
                vars(each)[KEY] = snapshot.with_read(snapshot.db, values)

    def __reduce__(self) -> tuple[Any, ...]:
        return noting, (self._mode,)


@lru_cache
def noting(mode: Any) -> Any:
    """Return the fetch mode that does as `mode` and tells the guards."""
    return mode if isinstance(mode, Noting) else Noting(mode)
