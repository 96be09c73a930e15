"""What there is to know of a guarded model, found out once."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from django.db import connections, models
from django.db.models.options import Options
from django.db.models.query_utils import DeferredAttribute

from interlock.django.guarded.columns import PLAIN, Column, comparison_of
from interlock.django.guarded.policies import LAST_WINS, OTHERS, REFUSE, Policy, policies_of
from interlock.django.guarded.values import AnyField

_CLOSED_TYPES = frozenset(
    {
        "AutoField", "BigAutoField", "SmallAutoField", "BooleanField", "CharField", "DateField", "DateTimeField",
        "DecimalField", "DurationField", "FileField", "FloatField", "GenericIPAddressField", "IntegerField",
        "BigIntegerField", "SmallIntegerField", "PositiveIntegerField", "PositiveBigIntegerField",
        "PositiveSmallIntegerField", "SlugField", "TextField", "TimeField", "UUIDField",
    }
)  # fmt: skip
_PLAIN_PRE_SAVES = (models.Field.pre_save, models.FileField.pre_save)
_CLOCK_PRE_SAVES = (models.DateField.pre_save, models.DateTimeField.pre_save, models.TimeField.pre_save)


class ModelPlan:
    """A model's fields as its guard needs them.

    Attributes:
        fields: the model's concrete fields, in the order in which `from_db` gets their values.
        attnames: the names of their attributes, in the same order.
        open_at: where in that order are attributes whose values may be changed in place.
        by_attname: the fields.
        keys: attributes of the primary keys of its tables.
        fences: attributes of `FenceField`s.
        computing: attributes whose field may set a value by itself while it is saved, as `auto_now` does.
        shown: attributes that a descriptor of somebody else's reads, as that of a translated field does: what they
            show may be anything, also what stands in another column.
        policies: what is done with the fields, by their attributes.
    """

    def __init__(self, model: type[models.Model]) -> None:
        self.fields: Any = model._meta.concrete_fields
        self.by_attname: dict[str, Any] = {field.attname: field for field in self.fields}
        self.attnames = tuple(self.by_attname)
        self.open_at = tuple(index for index, field in enumerate(self.fields) if not _is_closed(field))
        metas = [model._meta, *(parent._meta for parent in model._meta.get_parent_list())]
        self.keys = frozenset(field.attname for meta in metas for field in key_fields(meta))
        self.fences = self._those(lambda field: getattr(field, "is_fence", False))
        self.computing = self._those(_computes)
        self.shown = self._those(
            lambda field: not isinstance(inspect.getattr_static(model, field.attname, None), DeferredAttribute)
        )
        named = policies_of(model)
        others = named.get(OTHERS, REFUSE)
        self.policies: dict[str, Policy] = {
            field.attname: named.get(field.name, LAST_WINS if field.attname in self.computing else others)
            for field in self.fields
        }
        self._some: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        self._columns: dict[tuple[str, str], Column] = {}
        self._adapting: dict[str, dict[str, Column]] = {}

    def _those(self, are: Callable[[AnyField], bool]) -> frozenset[str]:
        return frozenset(field.attname for field in self.fields if are(field))

    def some(self, field_names: Iterable[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return `attnames` and `open_at` of a row of which only some fields were read."""
        names = tuple(field_names)
        if names not in self._some:
            which = [index for index, attname in enumerate(self.attnames) if attname in names]
            self._some[names] = (
                tuple(self.attnames[index] for index in which),
                tuple(place for place, index in enumerate(which) if index in self.open_at),
            )
        return self._some[names]

    def column(self, field: AnyField, using: str) -> Column:
        """Return the column of a field in a database."""
        attname = field.attname
        if (using, attname) not in self._columns:
            connection = connections[using]
            # A key is compared as the database does, by its index.
            plain = attname in self.fences or attname in self.keys
            self._columns[using, attname] = Column(
                field,
                connection,
                "<=" if attname in self.fences else "=",
                PLAIN if plain else comparison_of(field, connection),
                settles=not plain and self.policies[attname] is not LAST_WINS,
            )
        return self._columns[using, attname]

    def adapting(self, using: str) -> dict[str, Column]:
        """Return the columns in a database, by their attributes, that may hold values otherwise than given."""
        if using not in self._adapting:
            columns = {attname: self.column(field, using) for attname, field in self.by_attname.items()}
            self._adapting[using] = {attname: column for attname, column in columns.items() if column.may_adapt}
        return self._adapting[using]

    def checked(self) -> list[Any]:
        """Return the fields that are an object's state: not keys, fences, generated ones and where the last wins."""
        return [
            field
            for attname, field in self.by_attname.items()
            if self.policies[attname] is not LAST_WINS
            and attname not in self.keys | self.fences
            and not getattr(field, "generated", False)
        ]


def plan_of(model: Any) -> ModelPlan:
    """Return the plan of a model class, made when it is first needed."""
    plan: ModelPlan | None = model._guarded_plan
    # A base class has other fields; and Django makes a new tuple of them when one was added to the class later.
    if plan is None or plan.fields is not model._meta.concrete_fields:
        plan = model._guarded_plan = ModelPlan(model)
    return plan


def key_fields(meta: "Options[models.Model]") -> list[Any]:
    """Return the fields of the primary key of a table."""
    return list(getattr(meta, "pk_fields", None) or [meta.pk])


def _is_closed(field: Any) -> bool:
    if field.remote_field is not None and getattr(field, "target_field", None) is not None:
        return _is_closed(field.target_field)
    return field.get_internal_type() in _CLOSED_TYPES and not hasattr(field, "from_db_value")


def _computes(field: Any) -> bool:
    pre_save = type(field).pre_save
    if pre_save in _CLOCK_PRE_SAVES:
        return bool(field.auto_now)
    return pre_save not in _PLAIN_PRE_SAVES and not getattr(field, "is_fence", False)
