"""Models of every kind whose rows can be occupied."""

import uuid
from typing import Any

from django.conf import settings
from django.db import models

CASELESS = {"sqlite": "nocase", "mariadb": "utf8mb4_general_ci", "postgresql": None}[settings.DATABASE]


class Item(models.Model):
    name = models.CharField(max_length=100)
    count = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Volume(Item):
    pages = models.IntegerField(default=1)


class OldItem(Item):
    class Meta:
        proxy = True


class Empty(Item):
    """One whose instances are false, as containers without content are."""

    class Meta:
        proxy = True

    def __len__(self) -> int:
        return 0


class Ticket(models.Model):
    key = models.UUIDField(primary_key=True, default=uuid.uuid4)
    note = models.TextField(default="")


class PaddedField(models.CharField):
    """Text that PostgreSQL compares without regard to the blanks at its end."""

    def db_type(self, connection: Any) -> str | None:
        return "char(8)" if connection.vendor == "postgresql" else super().db_type(connection)


class Shelfmark(models.Model):
    """Its key is equal, to the database, to other texts."""

    code = PaddedField(max_length=8, primary_key=True, db_collation=CASELESS)
    count = models.IntegerField(default=0)


class Place(models.Model):
    """A row whose key is another's."""

    mark = models.OneToOneField(Shelfmark, models.CASCADE, primary_key=True)


if hasattr(models, "CompositePrimaryKey"):

    class Loan(models.Model):
        pk = models.CompositePrimaryKey("reader", "item")
        reader = models.IntegerField()
        item = models.IntegerField()
        count = models.IntegerField(default=0)
