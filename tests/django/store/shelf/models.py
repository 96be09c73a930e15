"""Models whose rows the tests occupy, of every kind."""

import uuid
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models

CASELESS = {"sqlite": "nocase", "mariadb": "utf8mb4_general_ci", "postgresql": None}[settings.DATABASE]

if TYPE_CHECKING:  # at run time it can't be subscripted
    Text = models.CharField[str, str]
else:
    Text = models.CharField


class Item(models.Model):
    name: "models.CharField[str, str]" = models.CharField(max_length=100)
    count: "models.IntegerField[int, int]" = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Volume(Item):
    pages: "models.IntegerField[int, int]" = models.IntegerField(default=1)


class OldItem(Item):
    class Meta:
        proxy = True


class Empty(Item):
    """A model whose instances are false, like empty containers."""

    class Meta:
        proxy = True

    def __len__(self) -> int:
        return 0


class Ticket(models.Model):
    key: "models.UUIDField[uuid.UUID, uuid.UUID]" = models.UUIDField(primary_key=True, default=uuid.uuid4)
    note: "models.TextField[str, str]" = models.TextField(default="")


class PaddedField(Text):
    """Text that PostgreSQL compares without trailing blanks."""

    def db_type(self, connection: Any) -> str | None:
        return "char(8)" if connection.vendor == "postgresql" else super().db_type(connection)


class Shelfmark(models.Model):
    """A model with a key that the database finds equal to other texts."""

    code = PaddedField(max_length=8, primary_key=True, db_collation=CASELESS)
    count: "models.IntegerField[int, int]" = models.IntegerField(default=0)


class Place(models.Model):
    """A model whose primary key is a foreign key."""

    mark: "models.OneToOneField[Shelfmark, Shelfmark]" = models.OneToOneField(
        Shelfmark, models.CASCADE, primary_key=True
    )


if hasattr(models, "CompositePrimaryKey"):

    class Loan(models.Model):
        pk = models.CompositePrimaryKey("reader", "item")
        reader: "models.IntegerField[int, int]" = models.IntegerField()
        item: "models.IntegerField[int, int]" = models.IntegerField()
        count: "models.IntegerField[int, int]" = models.IntegerField(default=0)
