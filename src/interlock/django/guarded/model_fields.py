"""The facts about a guarded model, collected once, and the SQL by which an UPDATE checks that a column is unchanged.

The comparison must never treat two different values as equal: a text column may ignore case or trailing blanks, so
text is compared byte by byte. It may treat equal values as different (a float that the driver rounds, an encrypted
column): then the UPDATE finds no row, and the row is locked and compared in Python, where `values.same` decides.

The snapshot must contain the values that the database stores, not those that the program gave: a decimal is rounded
to its places, a text padded, a NaN becomes NULL. A value that may be stored differently is read back in the
transaction that writes it.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from itertools import permutations
from typing import Any, TypeAlias

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DecimalField, JSONField
from django.db.models.options import Options
from django.db.models.query_utils import DeferredAttribute
from django.db.models.sql.compiler import SQLCompiler

from interlock.django.guarded.conflicts import LAST_WINS, OTHERS, REFUSE, Policy, policies_of
from interlock.django.guarded.values import AnyField, is_expression

Comparison: TypeAlias = tuple[str, str]
"""The SQL of the column's side and of the value's side; {} is the column, or the value's placeholder."""

PLAIN_COMPARISON: Comparison = ("{}", "{}")
_TEXT = re.compile(r"(var)?char\b|character\b|nvarchar|text\b|(tiny|medium|long)text\b|citext\b", re.IGNORECASE)
_TEXTS: dict[str, Comparison] = {
    "sqlite": ("{} COLLATE BINARY", "{}"),
    "postgresql": ('({})::text COLLATE "C"', "({})::text"),
    "mariadb": ("CAST({} AS BINARY)", "CAST({} AS BINARY)"),
    "mysql": ("CAST({} AS BINARY)", "CAST({} AS BINARY)"),
}
_JSONS: dict[str, Comparison] = {
    "sqlite": ("JSON({})", "JSON({})"),
    # As text, because 1 and 1.0 are equal as jsonb.
    "postgresql": ('({})::jsonb::text COLLATE "C"', "({})::jsonb::text"),
    "mariadb": ("CAST(JSON_COMPACT({}) AS BINARY)", "CAST(JSON_COMPACT({}) AS BINARY)"),
}
_TEXT_ARRAY: Comparison = ('({})::text[] COLLATE "C"', "({})::text[]")
_HAS_EQUALITY = re.compile(
    r"bool|smallint|integer|bigint|(small|big)?serial|double precision|real|numeric|decimal|date\b|time|interval|uuid"
    r"|bytea|inet|cidr|macaddr|hstore|\w+range\b",
    re.IGNORECASE,
)
"""Types of PostgreSQL that have equality; others (json, xml, point) have none, and a comparison fails."""

_DIGITS_OF_A_DOUBLE = 15
_HELD_AS_GIVEN = (
    r"bool|tinyint|smallint|integer|bigint|int\b|(small|big)?serial|varchar|character varying"
    r"|(tiny|medium|long)?text\b|citext\b|uuid|(tiny|medium|long)?blob|bytea|date\b|datetime\(6\)|time\(6\)|timestamp\(6\)|inet|json\b"
    r"|numrange\b|tstzrange\b|hstore"
)
_HELD_BY = {
    vendor: re.compile(f"{_HELD_AS_GIVEN}{more}", re.IGNORECASE)
    for vendor, more in (
        ("postgresql", r"|(timestamp|time)( with(out)? time zone)?$|interval$"),
        ("sqlite", r"|datetime|time\b|char"),
        ("mysql", ""),
    )
}
_WITH_EXPONENT = re.compile(r"\d[eE][+-]?\d")


def comparison_of(field: AnyField, connection: BaseDatabaseWrapper) -> Comparison | None:
    """Return how the column of a field is compared with a value; None if the comparison may be impossible."""
    product = "mariadb" if getattr(connection, "mysql_is_mariadb", False) else connection.vendor
    if isinstance(field, JSONField):
        return _JSONS.get(product)
    kind = field.db_type(connection) or ""
    if _TEXT.match(kind):
        return _TEXT_ARRAY if kind.endswith("]") else _TEXTS.get(product)
    if product == "postgresql":
        return PLAIN_COMPARISON if _HAS_EQUALITY.match(kind) else None
    return PLAIN_COMPARISON if product in _TEXTS else None


class Column:
    """A column in one database, and the SQL that compares it, made once.

    Attributes:
        comparable: True if the database can compare the column.
        may_adapt: True if the column may store some values differently from those given, so that they must be read
            back.

    Args:
        field: the field of the model.
        sign: the operator of the comparison, like "=".
        comparison: the SQL of both sides; None if the comparison may be impossible.
        settles: False if the stored values need not be read back.
    """

    __slots__ = ("_equal", "_kind", "_null", "_right", "_vendor", "comparable", "field", "may_adapt")

    def __init__(
        self,
        field: Any,
        connection: BaseDatabaseWrapper,
        sign: str,
        comparison: Comparison | None,
        settles: bool,
    ) -> None:
        quote = connection.ops.quote_name
        column = f"{quote(field.model._meta.db_table)}.{quote(field.column)}"
        left, self._right = comparison or PLAIN_COMPARISON
        self.field = field
        self.comparable = comparison is not None
        self._null = f"{column} IS NULL"
        self._equal = f"{left.format(column)} {sign} "
        self._vendor: str = connection.vendor
        self._kind: str = field.db_type(connection) or ""
        as_given = _HELD_BY.get(self._vendor)
        self.may_adapt: bool = settles and (
            self._vendor == "postgresql"
            if isinstance(field, JSONField)
            else isinstance(field, DecimalField) or as_given is None or not as_given.match(self._kind)
        )

    def as_sql(self, value: object, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, Sequence[object]]:
        """Return the SQL that compares the column with a Python value of the field, and its parameters."""
        field = self.field
        value = field.get_db_prep_save(value, connection=connection)
        if value is None:
            return self._null, ()
        placeholder, params = "%s", (value,)
        if hasattr(value, "as_sql"):
            placeholder, params = compiler.compile(value)
        elif hasattr(field, "get_placeholder_sql"):
            placeholder, params = field.get_placeholder_sql(value, compiler, connection)
        elif hasattr(field, "get_placeholder"):
            placeholder = field.get_placeholder(value, compiler, connection)
        return self._equal + self._right.format(placeholder), params

    def adapts(self, value: object) -> bool:
        """Return True if the column may store a value differently from the one given."""
        field, kind, vendor = self.field, self._kind, self._vendor
        if not self.may_adapt or value is None or is_expression(value):
            return False
        if isinstance(field, DecimalField):
            return not _fits(value, field.decimal_places, vendor)
        if isinstance(field, JSONField):
            # jsonb stores 1e22 as a number of 23 digits, which is read back as an integer.
            return _WITH_EXPONENT.search(str(field.get_prep_value(value) or value)) is not None
        if kind.lower().startswith(("double", "real")) and (vendor != "postgresql" or kind.startswith("double")):
            return isinstance(value, float) and not math.isfinite(value)
        if vendor == "mysql" and kind.lower().startswith("char"):
            return isinstance(value, str) and value.endswith(" ")
        return True


def _fits(value: object, places: int | None, vendor: str) -> bool:
    """Return True if a decimal column stores a number unchanged."""
    if type(value) is not Decimal or not value.is_finite() or places is None:
        return type(value) is int
    _, digits, exponent = value.as_tuple()
    return -int(exponent) <= places and (vendor != "sqlite" or len(digits) <= _DIGITS_OF_A_DOUBLE)


class StillAsRead:
    """An SQL condition: each of some columns compares as required with its value."""

    # Django asks a condition for this attribute.
    conditional = True
    contains_aggregate = False
    contains_over_clause = False

    def __init__(self, conditions: Sequence[tuple[Column, object]]) -> None:
        self.conditions = conditions

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[object]]:
        """Return the SQL of all conditions and its parameters."""
        parts = [column.as_sql(value, compiler, connection) for column, value in self.conditions]
        return " AND ".join(sql for sql, _ in parts), [each for _, params in parts for each in params]


_CLOSED_TYPES = frozenset(
    {
        "AutoField", "BigAutoField", "SmallAutoField", "BooleanField", "CharField", "DateField", "DateTimeField",
        "DecimalField", "DurationField", "FileField", "FloatField", "GenericIPAddressField", "IntegerField",
        "BigIntegerField", "SmallIntegerField", "PositiveIntegerField", "PositiveBigIntegerField",
        "PositiveSmallIntegerField", "SlugField", "TextField", "TimeField", "UUIDField",
    }
)  # fmt: skip
_PRE_SAVES_OF_DJANGO = tuple(
    field.pre_save
    for field in (models.Field, models.FileField, models.DateField, models.DateTimeField, models.TimeField)
)


class ModelPlan:
    """The facts about a model's fields that saves need.

    Attributes:
        fields: the model's concrete fields, in the order in which `from_db` gets their values.
        attnames: the names of their attributes, in the same order.
        open_at: the positions of attributes whose values are mutable.
        by_attname: the fields, by attribute.
        keys: the attributes of the primary keys of its tables.
        fences: the attributes of `FenceField`s.
        computing: the attributes of fields that set their value to the current time, such as `auto_now`.
        converting: the attributes of other fields that have a `pre_save` but no policy. A value that the program has
            set is checked; a value that only `pre_save` has changed is not.
        named: the attributes of fields with a policy of their own.
        together: the other attributes of the same group, by attribute, such as an amount and its currency.
        shown: the attributes with a descriptor of another library, such as a translated field: reading them may
            return the value of another column.
        policies: the policies of the fields, by attribute.
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
        self.named = self._those(lambda field: field.name in named)
        self.converting = self._those(_has_own_pre_save) - self.computing - self.fences - self.named
        self.together: dict[str, set[str]] = {}
        for group in [*declared_groups(model), *_groups_of_fields(model)]:
            members = [field for field in self.fields if field.name in group or field.attname in group]
            for field, mate in permutations(members, 2):
                if field.model is mate.model:
                    self.together.setdefault(field.attname, set()).add(mate.attname)
        self.policies: dict[str, Policy] = {
            attname: named.get(field.name, LAST_WINS if attname in self.computing else named.get(OTHERS, REFUSE))
            for attname, field in self.by_attname.items()
        }

    def _those(self, are: Callable[[AnyField], bool]) -> frozenset[str]:
        return frozenset(field.attname for field in self.fields if are(field))

    def checked(self) -> list[Any]:
        """Return the fields of an object's state: all except keys, fences, generated and `LAST_WINS` fields."""
        return [
            field
            for attname, field in self.by_attname.items()
            if self.policies[attname] is not LAST_WINS
            and attname not in self.keys | self.fences
            and not getattr(field, "generated", False)
        ]


@cache
def some_of(plan: ModelPlan, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return `attnames` and `open_at` of a row of which only some fields were read."""
    which = [index for index, attname in enumerate(plan.attnames) if attname in names]
    return (
        tuple(plan.attnames[index] for index in which),
        tuple(place for place, index in enumerate(which) if index in plan.open_at),
    )


@cache
def column_of(plan: ModelPlan, attname: str, using: str) -> Column:
    """Return the column of a field in a database."""
    field, connection = plan.by_attname[attname], connections[using]
    # A key uses the database's own equality, and so its index.
    plain = attname in plan.fences or attname in plan.keys
    return Column(
        field,
        connection,
        "<=" if attname in plan.fences else "=",
        PLAIN_COMPARISON if plain else comparison_of(field, connection),
        settles=not plain and plan.policies[attname] is not LAST_WINS,
    )


@cache
def adapting(plan: ModelPlan, using: str) -> list[tuple[str, Column]]:
    """Return the columns in a database, with their attributes, that may store values differently from those given."""
    columns = [(attname, column_of(plan, attname, using)) for attname in plan.attnames]
    return [(attname, column) for attname, column in columns if column.may_adapt]


def plan_of(model: Any) -> ModelPlan:
    """Return the plan of a model class; it is made at first use."""
    plan: ModelPlan | None = model._guarded_plan
    # Not the plan of a base class, which has other fields; and not an old one: Django makes a new tuple of the fields
    # when a field is added to the class later.
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


def _has_own_pre_save(field: Any) -> bool:
    return type(field).pre_save not in _PRE_SAVES_OF_DJANGO


def _computes(field: object) -> bool:
    if _has_own_pre_save(field):  # such as AutoLastModifiedField of django-model-utils
        return isinstance(field, models.DateField | models.TimeField) and not field.editable
    return bool(getattr(field, "auto_now", False))


def declared_groups(model: type[models.Model]) -> list[tuple[str, ...]]:
    """Return the groups of `guarded_together` in a model and its bases."""
    return [tuple(group) for base in model.__mro__ for group in vars(base).get("guarded_together", ())]


def _groups_of_fields(model: type[models.Model]) -> Iterator[set[str]]:
    """Yield the names of fields that another field declares as its parts.

    A field names a part in an attribute `..._field`: `ct_field` of a generic foreign key, `width_field` of an image,
    `price_field` of a currency. A composite foreign key has `from_fields`.
    """
    for field in [*model._meta.fields, *model._meta.private_fields]:
        declared = [value for name, value in vars(field).items() if name.endswith("_field")]
        # An editable field is a separate value, such as the original of a translated field.
        parts = [each.name for each in declared if isinstance(each, models.Field) and not each.editable]
        names = [each for each in [*declared, *(getattr(field, "from_fields", None) or ())] if isinstance(each, str)]
        yield {field.name, *parts, *names}
