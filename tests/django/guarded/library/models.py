"""Guarded models of every kind."""

import base64
import itertools
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.utils import timezone

from interlock.django.fenced import FenceField
from interlock.django.guarded import LAST_WINS, REFUSE, Guarded, added, merged_items, merged_keys

if TYPE_CHECKING:  # at run time they can't be subscripted
    MaybeText = models.TextField[str | None, str | None]
    Whole = models.IntegerField[int, int]
    Text = models.CharField[str, str]
    MaybeMoment = models.DateTimeField[datetime | None, datetime | None]
else:
    MaybeText, Whole = models.TextField, models.IntegerField
    Text, MaybeMoment = models.CharField, models.DateTimeField

CASELESS = {"sqlite": "nocase", "mariadb": "utf8mb4_general_ci", "postgresql": None}[settings.DATABASE]


class Author(models.Model):
    name: "models.CharField[str, str]" = models.CharField(max_length=100)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class BookFields(models.Model):
    """The fields of a guarded book and a plain one."""

    name: "models.CharField[str, str]" = models.CharField(max_length=100)
    status: "models.CharField[str, str]" = models.CharField(
        max_length=20, default="use", choices=[("use", "In use"), ("free", "On the shelf")]
    )
    notes: "models.TextField[str, str]" = models.TextField(blank=True, default="")
    copies: "models.IntegerField[int, int]" = models.IntegerField(default=1)
    price: "models.DecimalField[Decimal, Decimal]" = models.DecimalField(
        max_digits=8, decimal_places=2, default=Decimal("1.00")
    )
    rating: "models.FloatField[float | None, float | None]" = models.FloatField(null=True, blank=True)
    bought: "models.DateField[date | None, date | None]" = models.DateField(null=True, blank=True)
    due: "models.DateTimeField[datetime | None, datetime | None]" = models.DateTimeField(null=True, blank=True)
    author: "models.ForeignKey[Author | None, Author | None]" = models.ForeignKey(
        Author, models.CASCADE, null=True, blank=True
    )
    tags = models.JSONField(default=list, blank=True)
    cover = models.FileField(blank=True, default="")
    changed: "models.DateTimeField[datetime, datetime]" = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


class Book(Guarded, BookFields):
    """A guarded model: the base class is the only difference."""


class PlainBook(BookFields):
    """The same model without the guard, for comparison."""


class OldBook(Book):
    class Meta:
        proxy = True


class Everything(Guarded, models.Model):
    """A column of each type that databases compare differently."""

    text: "models.CharField[str | None, str | None]" = models.CharField(
        max_length=50, null=True, db_collation=CASELESS
    )
    number: "models.BigIntegerField[int | None, int | None]" = models.BigIntegerField(null=True)
    amount: "models.DecimalField[Decimal | None, Decimal | None]" = models.DecimalField(
        max_digits=30, decimal_places=10, null=True
    )
    ratio: "models.FloatField[float | None, float | None]" = models.FloatField(null=True)
    yes: "models.BooleanField[bool | None, bool | None]" = models.BooleanField(null=True)
    day: "models.DateField[date | None, date | None]" = models.DateField(null=True)
    moment: "models.DateTimeField[datetime | None, datetime | None]" = models.DateTimeField(null=True)
    hour: "models.TimeField[time | None, time | None]" = models.TimeField(null=True)
    span: "models.DurationField[timedelta | None, timedelta | None]" = models.DurationField(null=True)
    raw: "models.BinaryField[bytes | memoryview | None, bytes | memoryview | None]" = models.BinaryField(null=True)
    key: "models.UUIDField[UUID | None, UUID | None]" = models.UUIDField(null=True)
    address: "models.GenericIPAddressField[str | None, str | None]" = models.GenericIPAddressField(null=True)
    data = models.JSONField(null=True)
    cover = models.FileField(null=True)
    other: "models.IntegerField[int, int]" = models.IntegerField(default=0)


class Sealed(MaybeText):
    """A text that is encrypted at each write, so that the same text is never stored twice as the same value."""

    _salts = itertools.count()

    def get_prep_value(self, value: Any) -> Any:
        return value

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        if value is None:
            return None
        return f"{next(self._salts)}:{base64.b64encode(value.encode()).decode()}"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else base64.b64decode(value.partition(":")[2]).decode()


class Stamp(Whole):
    """A number that the field itself increments at each save."""

    def pre_save(self, model_instance: models.Model, add: bool) -> int:
        value: int = (getattr(model_instance, self.attname) or 0) + 1
        setattr(model_instance, self.attname, value)
        return value


class Loud:
    """Returns the instance's value in capital letters, as translating descriptors return another column's value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else instance.__dict__[self._name].upper()

    def __set__(self, instance: Any, value: str) -> None:
        instance.__dict__[self._name] = value


class LoudField(Text):
    def contribute_to_class(self, cls: Any, name: str, private_only: bool = False) -> None:
        super().contribute_to_class(cls, name, private_only)
        setattr(cls, name, Loud(name))


class Shouted(Guarded, models.Model):
    text = LoudField(max_length=50)
    number: "models.IntegerField[int, int]" = models.IntegerField(default=0)


class Padded(Text):
    """Text of a fixed length: PostgreSQL pads it with blanks, MariaDB strips them."""

    def db_type(self, connection: Any) -> str | None:
        return "char(8)" if connection.vendor in ("postgresql", "mysql") else super().db_type(connection)


class Seconds(MaybeMoment):
    """A time in a column without microseconds: PostgreSQL rounds it, MariaDB truncates it."""

    def db_type(self, connection: Any) -> str | None:
        kinds = {"postgresql": "timestamp(0) with time zone", "mysql": "datetime"}
        return kinds.get(connection.vendor, super().db_type(connection))


class AdaptingFields(models.Model):
    """Columns that store other values than they were given."""

    price: "models.DecimalField[Decimal, Decimal]" = models.DecimalField(
        max_digits=8, decimal_places=2, default=Decimal("0.00")
    )
    amount: "models.DecimalField[Decimal | None, Decimal | None]" = models.DecimalField(
        max_digits=30, decimal_places=10, null=True
    )
    ratio: "models.FloatField[float | None, float | None]" = models.FloatField(null=True)
    code = Padded(max_length=8, default="")
    moment = Seconds(null=True)
    data = models.JSONField(null=True)
    name: "models.CharField[str, str]" = models.CharField(max_length=20, default="")

    class Meta:
        abstract = True


class Adapting(Guarded, AdaptingFields):
    on_stale = {"*": REFUSE}


class AdaptingAdded(Guarded, AdaptingFields):
    on_stale = {"price": added}


class AdaptingPlain(AdaptingFields):
    pass


class Letter(Guarded, models.Model):
    secret = Sealed(null=True)
    stamp = Stamp(default=0)
    subject: "models.CharField[str, str]" = models.CharField(max_length=50, default="")


class Counter(Guarded, models.Model):
    """A model whose fields each have their own policy."""

    on_stale = {
        "seen": LAST_WINS,
        "total": added,
        "tags": merged_items,
        "settings": merged_keys,
    }

    seen: "models.IntegerField[int, int]" = models.IntegerField(default=0)
    total: "models.IntegerField[int, int]" = models.IntegerField(default=0)
    tags = models.JSONField(default=list)
    settings = models.JSONField(default=dict)
    name: "models.CharField[str, str]" = models.CharField(max_length=50, default="")


class Careless(Guarded, models.Model):
    on_stale = LAST_WINS

    name: "models.CharField[str, str]" = models.CharField(max_length=50, default="")
    number: "models.IntegerField[int, int]" = models.IntegerField(default=0)


class Publication(Guarded, models.Model):
    title: "models.CharField[str, str]" = models.CharField(max_length=50)
    pages: "models.IntegerField[int, int]" = models.IntegerField(default=0)


class Magazine(Publication):
    issue: "models.IntegerField[int, int]" = models.IntegerField(default=1)
    month: "models.CharField[str, str]" = models.CharField(max_length=20, default="May")


class Account(Guarded, models.Model):
    """A model with a primary key that the caller sets, written with fences."""

    number: "models.CharField[str, str]" = models.CharField(max_length=20, primary_key=True)
    owner: "models.CharField[str, str]" = models.CharField(max_length=50)
    balance: "models.IntegerField[int, int]" = models.IntegerField(default=0)
    fence = FenceField()


class Ledger(models.Model):
    """A model that is not guarded, written with fences."""

    name: "models.CharField[str, str]" = models.CharField(max_length=50)
    balance: "models.IntegerField[int, int]" = models.IntegerField(default=0)
    fence = FenceField()


class Page(Ledger):
    text: "models.CharField[str, str]" = models.CharField(max_length=50, default="")


class Remembered(Guarded, models.Model):
    """A model with a `from_db` as in Django's documentation."""

    name: "models.CharField[str, str]" = models.CharField(max_length=50, default="")
    number: "models.IntegerField[int, int]" = models.IntegerField(default=0)

    @classmethod
    def from_db(cls, db: Any, field_names: Any, values: Any, **options: Any) -> Any:
        if len(values) != len(cls._meta.concrete_fields):
            rest = list(reversed(values))
            values = [
                rest.pop() if field.attname in field_names else models.DEFERRED for field in cls._meta.concrete_fields
            ]
        instance: Any = cls(*values)
        instance._state.adding = False
        instance._state.db = db
        instance.loaded = dict(zip(field_names, values, strict=False))
        return instance


class OldRemembered(Remembered):
    class Meta:
        proxy = True


class Selected(Guarded, models.Model):
    name: "models.CharField[str, str]" = models.CharField(max_length=50, default="")
    number: "models.IntegerField[int, int]" = models.IntegerField(default=0)

    class Meta:
        select_on_save = True


class Code(Text):
    """A text whose `pre_save` only converts it."""

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        return self.get_prep_value(super().pre_save(model_instance, add))

    def get_prep_value(self, value: Any) -> Any:
        return str(value).upper()


class Place(Guarded, models.Model):
    """A model with values of several columns."""

    guarded_together = [("lat", "lon")]

    name: "models.CharField[str, str]" = models.CharField(max_length=50, default="", blank=True)
    lat: "models.FloatField[float, float]" = models.FloatField(default=0)
    lon: "models.FloatField[float, float]" = models.FloatField(default=0)
    country = Code(max_length=2, default="DE")
    about_type: "models.ForeignKey[ContentType | None, ContentType | None]" = models.ForeignKey(
        ContentType,
        models.CASCADE,
        null=True,
        blank=True,
        db_constraint=False,  # the tables of apps without migrations are made first
    )
    about_id: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True, blank=True)
    about = GenericForeignKey("about_type", "about_id")


class CountedPlace(Place):
    """A place whose coordinates have policies of their own."""

    on_stale = {"lat": added, "lon": added}

    class Meta:
        proxy = True


class CarelessPlace(Place):
    on_stale = {"lat": LAST_WINS, "lon": LAST_WINS}

    class Meta:
        proxy = True


class Ticket(Guarded, models.Model):
    """A model whose own `save()` sets fields, as on many sites, and whose `delete()` keeps the row."""

    title: "models.CharField[str, str]" = models.CharField(max_length=50)
    status: "models.CharField[str, str]" = models.CharField(max_length=50, default="open")
    modified: "models.DateTimeField[datetime | None, datetime | None]" = models.DateTimeField(null=True)
    day: "models.DateField[date | None, date | None]" = models.DateField(null=True)
    due: "models.DateTimeField[datetime | None, datetime | None]" = models.DateTimeField(null=True)
    heading: "models.CharField[str, str]" = models.CharField(max_length=100, default="")
    deleted_at: "models.DateTimeField[datetime | None, datetime | None]" = models.DateTimeField(null=True)

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.modified, self.day = timezone.now(), timezone.localdate()
        self.heading = f"{self.title} ({self.status})"
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        self.deleted_at = timezone.now()
        self.save()


if settings.DATABASE == "postgresql":
    from django.contrib.postgres.fields import ArrayField, IntegerRangeField

    class Shelf(Guarded, models.Model):
        """A model with columns that only PostgreSQL has."""

        labels: "ArrayField[list[str], list[str]]" = ArrayField(models.CharField(max_length=20), default=list)
        rows: "ArrayField[list[list[int]], list[list[int]]]" = ArrayField(
            ArrayField(models.IntegerField()), default=list
        )
        span = IntegerRangeField(null=True)
        name: "models.CharField[str, str]" = models.CharField(max_length=20, default="")
