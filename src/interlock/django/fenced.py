"""Writes that are refused after a later holder has written: fencing tokens in the database.

A holder can be stopped (a suspended machine, a long pause) until its lease has expired, and then continue and write.
Each grant has a fence, a number that grows with each holder. A row that stores the highest fence of its writers
refuses the write of a former holder, in the statement that writes.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import models, transaction
from django.db.models.functions import Greatest
from django.db.models.lookups import Exact

from interlock.client.base_grant import BaseGrant
from interlock.core.errors import InvalidArgument
from interlock.core.errors import StaleFence as StaleFence
from interlock.django.guarded import Guarded
from interlock.django.guarded.conflicts import FieldConflict, StaleObject
from interlock.django.guarded.saving import is_guarded_save, keep_fenced

if TYPE_CHECKING:
    Base = models.BigIntegerField[int, int]
else:
    Base = models.BigIntegerField


class StaleFencedObject(StaleObject, StaleFence):
    """The `StaleFence` that the save of a guarded instance raises."""

    def _message(self) -> str:
        (name, conflict), *_ = self.fields.items()
        return (
            f"{self.instance._meta.label} {self.instance.pk!r} was not saved: a holder with fence {conflict.theirs} "
            f"has written it ({name}); this holder, with fence {conflict.mine}, has lost the lock. Stop the work."
        )


class FenceField(Base):
    """A column with the fence of the last holder that has written the row.

    Write by `fenced(…)`. A plain `save()` never lowers the fence. On a guarded model `save()` checks it: a fence that
    was set on the instance is written, at each save, only if the row does not have a higher one.
    """

    is_fence = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", 0)
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        """Return the arguments with which a migration makes the field again."""
        name, path, args, kwargs = super().deconstruct()
        return name, path, args, {**kwargs, "editable": self.editable}

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        """Return the value to save: an expression for the higher one of the column's and the instance's."""
        value = super().pre_save(model_instance, add)
        if add or is_guarded_save(model_instance):
            return value
        return Greatest(models.F(self.name), models.Value(value, output_field=models.BigIntegerField()))

    def refusal(self, instance: models.Model, conflict: FieldConflict) -> StaleObject:
        """Return the error for a guarded save after a later holder has written."""
        return StaleFencedObject(instance, {self.name: conflict})


class FencedRows:
    """Rows to be written with the fence of a grant; made by `fenced`."""

    def __init__(
        self, rows: models.QuerySet[models.Model], instance: models.Model | None, grant: BaseGrant, field: FenceField
    ) -> None:
        self._rows = rows
        self._instance = instance
        self._grant = grant
        self._field = field

    def update(self, **values: object) -> int:
        """Write all the rows, or none, and the grant's fence with them; as `QuerySet.update`.

        The condition of the UPDATE compares the fences. If there may be several rows, or no row was written, one more
        query checks whether a later holder has written one of them.

        Returns:
            The number of rows that were written; 0 if the query set is empty.

        Raises:
            LockLost: this process knows that the lock was lost; no query was sent.
            StaleFence: a later holder has written one of the rows.
            InvalidArgument: a field is of another table than the fence, or is the fence itself.
        """
        self._grant.check()
        self._check_values(values)
        rows = self._rows
        if len(rows.query.alias_map) > 1:
            # With conditions on other tables Django would put all conditions, also the fence's, into a subquery,
            # which a database may evaluate before it waits for a row.
            rows = rows.model._base_manager.using(rows.db).filter(pk__in=list(rows.values_list("pk", flat=True)))
        one = _is_one_row(rows)
        name, fence = self._field.name, self._grant.fence
        with nullcontext() if one else transaction.atomic(using=rows.db):
            count: int = rows.filter(**{f"{name}__lte": fence}).update(**values, **{name: fence})
            if not one or not count:
                later = rows.order_by().filter(**{f"{name}__gt": fence}).values_list(name, flat=True).first()
                if later is not None:
                    raise StaleFence(
                        f"{rows.model._meta.label} was not written: a holder with fence {later} has written it, and "
                        f"this holder, with fence {fence}, has lost lock {self._grant.name!r}. Stop the work.",
                        later,
                    )
        return count

    async def aupdate(self, **values: object) -> int:
        """Do the same as `update`, for asyncio."""
        return await sync_to_async(self.update)(**values)

    def save(self, **options: Any) -> None:
        """Save the instance with the grant's fence; the arguments are those of `Model.save`.

        Raises:
            LockLost, StaleFence: as `update`.
            StaleObject: as `save()` of a guarded model.
            InvalidArgument: the rows are a query set, or an instance of a model that is not guarded.
        """
        instance = self._instance
        if not isinstance(instance, Guarded):
            raise InvalidArgument("fenced(…).save() saves one instance of a Guarded model. Use update(…) for others.")
        self._grant.check()
        setattr(instance, self._field.attname, self._grant.fence)
        keep_fenced(instance, self._field.attname)
        if options.get("update_fields") is not None:
            options["update_fields"] = {*options["update_fields"], self._field.name}
        instance.save(**options)

    async def asave(self, **options: object) -> None:
        """Do the same as `save`, for asyncio."""
        await sync_to_async(self.save)(**options)

    def _check_values(self, values: Mapping[str, object]) -> None:
        own = self._field.model._meta
        if self._rows.model._meta.concrete_model is not own.concrete_model:
            raise InvalidArgument(f"The fence is in the table of {own.label}. Pass rows of that model to fenced().")
        for name in values:
            if own.get_field(name) is self._field:
                raise InvalidArgument(f"fenced() itself writes {name}. Omit {name}.")
            if own.get_field(name) not in own.local_concrete_fields:
                raise InvalidArgument(
                    f"{name} is not in the table of the fence ({own.label}), so one statement cannot write both. "
                    f"Add a FenceField to the table of {name}, and write it separately."
                )


def fenced(
    rows: models.QuerySet[models.Model] | models.Model, grant: BaseGrant, field: str | None = None
) -> FencedRows:
    """Return an object whose writes succeed only if no later holder of a lock has written the rows.

    `fenced(Book.objects.filter(pk=1), grant).update(name="…")` is an UPDATE of the rows whose `FenceField` isn't
    higher than the grant's fence, and stores that fence. `fenced(book, grant).save()` does the same for a guarded
    instance.

    Args:
        rows: a query set, or one instance; `update` does not change the instance's attributes.
        grant: the grant of the lock that protects the rows.
        field: the name of the `FenceField`, if the model has several.

    Raises:
        InvalidArgument: the model has no such field, or several; or the instance was never saved.
    """
    if not isinstance(grant, BaseGrant):
        raise InvalidArgument(f"fenced() needs the grant of one lock, not {type(grant).__name__}.")
    instance = rows if isinstance(rows, models.Model) else None
    if isinstance(rows, models.Model):
        if rows.pk is None:
            raise InvalidArgument(f"This {rows._meta.label} was never saved, so it has no row. Save it first.")
        rows = type(rows)._base_manager.using(rows._state.db).filter(pk=rows.pk)
    return FencedRows(rows, instance, grant, _fence_field(rows.model, field))


def _fence_field(model: type[models.Model], name: str | None) -> FenceField:
    fields = [each for each in model._meta.concrete_fields if isinstance(each, FenceField)]
    chosen = [each for each in fields if name in (None, each.name)]
    if len(chosen) != 1:
        has = ", ".join(each.name for each in fields) or "none"
        which = "one FenceField" if name is None else f"a FenceField {name!r}"
        raise InvalidArgument(f"{model._meta.label} must have {which} for fenced(). It has: {has}.")
    return chosen[0]


def _is_one_row(rows: models.QuerySet[models.Model]) -> bool:
    """Return True if a query set has certainly one row at most: it filters by one value of a unique column."""
    where = rows.query.where
    return (
        where.connector == "AND"
        and not where.negated
        and any(
            isinstance(each, Exact)
            and each.rhs_is_direct_value()
            and getattr(getattr(each.lhs, "target", None), "unique", False)
            for each in where.children
        )
    )
