"""What there is to know of a guarded model, found out once."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from django.db import connections, models

from interlock.django.guarded.adapting import Adapts, adapts
from interlock.django.guarded.condition import PLAIN, Column, comparison_of
from interlock.django.guarded.policies import LAST_WINS, OTHERS, REFUSE, Policy, policies_of
from interlock.django.guarded.values import is_expression

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
        computing: attributes whose field may set a value by itself while it is saved, as `auto_now` does.
        by_attname: the fields.
        keys: attributes of the primary keys of its tables.
        fences: attributes of `FenceField`s.
        django: the model's `from_db` without the guard.
    """

    def __init__(self, model: Any) -> None:
        self.fields: Any = model._meta.concrete_fields
        self.attnames: tuple[str, ...] = tuple(field.attname for field in self.fields)
        self.by_attname: dict[str, Any] = {field.attname: field for field in self.fields}
        self.open_at = tuple(index for index, field in enumerate(self.fields) if not _is_closed(field))
        self.django: Callable[..., Any] | None = None
        self._some: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        self.computing = tuple(field.attname for field in self.fields if _computes(field))
        self._columns: dict[str, dict[str, Column | None]] = defaultdict(dict)
        self._adapts: dict[str, dict[str, Adapts | None]] = defaultdict(dict)
        metas = [model._meta, *(parent._meta for parent in model._meta.get_parent_list())]
        self.keys = frozenset(field.attname for meta in metas for field in key_fields(meta))
        self.fences = frozenset(field.attname for field in self.fields if getattr(field, "is_fence", False))
        self._said = policies_of(model)
        others = self._said.get(OTHERS, REFUSE)
        self.policies: dict[str, Policy] = {
            field.attname: self._said.get(field.name, LAST_WINS if _is_clock(field) else others)
            for field in self.fields
        }

    def some(self, field_names: Iterable[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return `attnames` and `open_at` of a row of which only some fields were read."""
        names = tuple(field_names)
        if names not in self._some:
            loaded = set(names)
            which = [index for index, attname in enumerate(self.attnames) if attname in loaded]
            self._some[names] = (
                tuple(self.attnames[index] for index in which),
                tuple(place for place, index in enumerate(which) if index in self.open_at),
            )
        return self._some[names]

    def column(self, field: Any, using: str) -> Column | None:
        """Return the column of a field in a database; None if it is not known to be comparable."""
        attname = field.attname
        columns = self._columns[using]
        if attname not in columns:
            connection = connections[using]
            # A key is compared as the database does, by its index.
            plain = attname in self.fences or attname in self.keys
            comparison = PLAIN if plain else comparison_of(field, connection)
            sign = "<=" if attname in self.fences else "="
            columns[attname] = comparison and Column(field, comparison, sign, connection)
        return columns[attname]

    def adapts(self, field: Any, value: Any, using: str) -> bool:
        """True if the column of a field may hold a value otherwise than it is given, and the guard must know how."""
        attname = field.attname
        known = self._adapts[using]
        if attname not in known:
            idle = self.policies[attname] is LAST_WINS or attname in self.keys or attname in self.fences
            known[attname] = None if idle else adapts(field, connections[using])
        tell = known[attname]
        return tell is not None and not is_expression(value) and tell(value)

    def is_named(self, attname: str) -> bool:
        """True if `on_stale` says something of this very field."""
        return self.by_attname[attname].name in self._said

    def checked(self) -> list[Any]:
        """Return the fields that are an object's state: not keys, computed ones, fences and where the last wins."""
        return [
            field
            for field in self.fields
            if self.policies[field.attname] is not LAST_WINS
            and field.attname not in self.keys
            and not getattr(field, "generated", False)
            and field.attname not in self.fences
            and not (field.attname in self.computing and not self.is_named(field.attname))
        ]


def plan_of(model: Any) -> ModelPlan:
    """Return the plan of a model class, made when it is first needed."""
    plan: ModelPlan | None = model._guarded_plan
    # A base class has other fields; and Django makes a new tuple of them when one was added to the class later.
    if plan is None or plan.fields is not model._meta.concrete_fields:
        plan = model._guarded_plan = ModelPlan(model)
    return plan


def key_fields(meta: Any) -> list[Any]:
    """Return the fields of the primary key of a table."""
    return list(getattr(meta, "pk_fields", None) or [meta.pk])


def _is_closed(field: Any) -> bool:
    if field.remote_field is not None and getattr(field, "target_field", None) is not None:
        return _is_closed(field.target_field)
    return field.get_internal_type() in _CLOSED_TYPES and not hasattr(field, "from_db_value")


def _is_clock(field: Any) -> bool:
    return bool(getattr(field, "auto_now", False))


def _computes(field: Any) -> bool:
    if getattr(field, "is_fence", False):
        return False
    pre_save = type(field).pre_save
    if pre_save in _CLOCK_PRE_SAVES:
        return _is_clock(field)
    return pre_save not in _PLAIN_PRE_SAVES
