"""Models of every kind whose rows can be occupied."""

import uuid

from django.db import models


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


class Ticket(models.Model):
    key = models.UUIDField(primary_key=True, default=uuid.uuid4)
    note = models.TextField(default="")
