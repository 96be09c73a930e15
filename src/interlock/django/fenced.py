"""Writes that are refused when a later holder has written: the fence of a lock, kept in the database.

A holder can be stopped (a suspended machine, a long pause) until its lease is over, and then come back and write.
Each grant has a fence, a number that is higher with each holder. A row that keeps the highest fence of those who have
written it can refuse the late one, in the very statement that writes.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import models, transaction
from django.db.models.functions import Greatest
from django.db.models.lookups import Exact

from interlock.client.base import BaseGrant
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
    """`StaleFence` of the save of a guarded instance."""

    def _message(self) -> str:
        (name, conflict), *_ = self.fields.items()
        return (
            f"{self.instance._meta.label} {self.instance.pk!r} was not saved: a holder with fence {conflict.theirs} "
            f"has written it ({name}), and this one, with fence {conflict.mine}, has lost the lock; stop the work"
        )


class FenceField(Base):
    """A column that keeps the fence of the last holder that has written the row.

    Write by `fenced(…)`. A plain `save()` never takes the fence back to a lower one. On a guarded model `save()`
    heeds it: a fence that was set on the instance is written, each time, only over one that isn't higher.
    """

    is_fence = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", 0)
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        """Return what a migration needs to make the field again."""
        name, path, args, kwargs = super().deconstruct()
        return name, path, args, {**kwargs, "editable": self.editable}

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Return the value to be saved: the column's own, if that is higher."""
        value = super().pre_save(model_instance, add)
        if add or is_guarded_save(model_instance):
            return value
        return Greatest(models.F(self.name), models.Value(value, output_field=models.BigIntegerField()))

    def refusal(self, instance: models.Model, conflict: FieldConflict) -> StaleObject:
        """Return the error of a guarded save that came too late."""
        return StaleFencedObject(instance, {self.name: conflict})


class FencedRows:
    """Rows that are written with the fence of a grant; made by `fenced`."""

    def __init__(
        self, rows: models.QuerySet[models.Model], instance: models.Model | None, grant: BaseGrant, field: FenceField
    ) -> None:
        self._rows = rows
        self._instance = instance
        self._grant = grant
        self._field = field

    def update(self, **values: object) -> int:
        """Write all the rows, or none, and the grant's fence with them; as `QuerySet.update`.

        The fences are in the condition of the UPDATE. If the rows may be several, or none was written, one more query
        asks whether a later holder has written any of them.

        Returns:
            How many rows were written: 0 if there are none.

        Raises:
            LockLost: the lock was lost, as far as is known here; nothing was asked of the database.
            StaleFence: a later holder has written one of the rows.
            InvalidArgument: a field is of another table than the fence, or is the fence itself.
        """
        self._grant.check()
        self._check_values(values)
        rows = self._rows
        if len(rows.query.alias_map) > 1:
            # Conditions on other tables would take the fence's with them into a subquery, which a database may have
            # answered before it waits for a row.
            rows = rows.model._base_manager.using(rows.db).filter(pk__in=list(rows.values_list("pk", flat=True)))
        one = _is_one_row(rows)
        with nullcontext() if one else transaction.atomic(using=rows.db):
            count, later = self._write(rows, values, may_be_several=not one)
            if later is not None:
                raise self._refusal(later)
        return count

    async def aupdate(self, **values: object) -> int:
        """`update`, for asyncio."""
        return await sync_to_async(self.update)(**values)

    def save(self, **options: Any) -> None:
        """Save the instance with the grant's fence; the arguments are those of `Model.save`.

        Raises:
            LockLost, StaleFence: as `update`.
            StaleObject: as `save()` of a guarded model.
            InvalidArgument: this is a query set, or an instance of a model that is not guarded.
        """
        instance = self._instance
        if not isinstance(instance, Guarded):
            raise InvalidArgument("fenced(…).save() saves one instance of a Guarded model; use update(…) for others")
        self._grant.check()
        setattr(instance, self._field.attname, self._grant.fence)
        keep_fenced(instance, self._field.attname)
        if options.get("update_fields") is not None:
            options["update_fields"] = {*options["update_fields"], self._field.name}
        instance.save(**options)

    async def asave(self, **options: Any) -> None:
        """`save`, for asyncio."""
        await sync_to_async(self.save)(**options)

    def _write(
        self, rows: models.QuerySet[models.Model], values: Mapping[str, object], may_be_several: bool
    ) -> tuple[int, int | None]:
        """Return how many rows were written, and the fence of a later holder, if one was not."""
        name, fence = self._field.name, self._grant.fence
        count: int = rows.filter(**{f"{name}__lte": fence}).update(**values, **{name: fence})
        if count and not may_be_several:
            return count, None
        return count, rows.order_by().filter(**{f"{name}__gt": fence}).values_list(name, flat=True).first()

    def _check_values(self, values: Mapping[str, object]) -> None:
        own = self._field.model._meta
        if self._rows.model._meta.concrete_model is not own.concrete_model:
            raise InvalidArgument(f"the fence is in the table of {own.label}: give fenced() rows of that model")
        for name in values:
            if own.get_field(name) is self._field:
                raise InvalidArgument(f"{name} is written by fenced() itself; don't give it")
            if own.get_field(name) not in own.local_concrete_fields:
                raise InvalidArgument(
                    f"{name} is not in the table of the fence ({own.label}), and can't be written in the same "
                    f"statement; give its table a FenceField, and write it by itself"
                )

    def _refusal(self, later: int) -> StaleFence:
        return StaleFence(
            f"{self._rows.model._meta.label} was not written: a holder with fence {later} has written it, and this "
            f"one, with fence {self._grant.fence}, has lost the lock {self._grant.name!r}; stop the work",
            later,
        )


def fenced(
    rows: models.QuerySet[models.Model] | models.Model, grant: BaseGrant, field: str | None = None
) -> FencedRows:
    """Have rows written only if no later holder of a lock has written them.

    `fenced(Book.objects.filter(pk=1), grant).update(name="…")` is an UPDATE of the rows whose `FenceField` isn't
    higher than the grant's fence, which it sets. `fenced(book, grant).save()` does so for a guarded instance.

    Args:
        rows: a query set, or one instance, whose own attributes `update` leaves as they are.
        grant: of the lock that protects them.
        field: the name of the `FenceField`, if the model has several.

    Raises:
        InvalidArgument: the model has no such field, or several; or the instance was never saved.
    """
    if not isinstance(grant, BaseGrant):
        raise InvalidArgument(f"fenced() takes the grant of one lock, not {type(grant).__name__}")
    instance = rows if isinstance(rows, models.Model) else None
    if isinstance(rows, models.Model):
        if rows.pk is None:
            raise InvalidArgument(f"this {rows._meta.label} was never saved: there is no row to be fenced")
        rows = type(rows)._base_manager.using(rows._state.db).filter(pk=rows.pk)
    return FencedRows(rows, instance, grant, _fence_field(rows.model, field))


def _fence_field(model: type[models.Model], name: str | None) -> FenceField:
    fields = [each for each in model._meta.concrete_fields if isinstance(each, FenceField)]
    chosen = [each for each in fields if name in (None, each.name)]
    if len(chosen) != 1:
        has = ", ".join(each.name for each in fields) or "none"
        which = "one FenceField" if name is None else f"a FenceField {name!r}"
        raise InvalidArgument(f"{model._meta.label} must have {which} for fenced() to use; it has: {has}")
    return chosen[0]


def _is_one_row(rows: models.QuerySet[models.Model]) -> bool:
    """True if a query set is certainly of one row at most: it asks for one value of a unique column."""
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
