"""A model with thirteen columns."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from django.db import models


class Plain(models.Model):
    """It saves every column, as Django does."""

    title: models.CharField[str, str] = models.CharField(max_length=200, default="title")
    author: models.CharField[str, str] = models.CharField(max_length=200, default="author")
    status: models.CharField[str, str] = models.CharField(max_length=20, default="free")
    notes: models.TextField[str, str] = models.TextField(default="")
    year: models.IntegerField[int, int] = models.IntegerField(default=1900)
    copies: models.IntegerField[int, int] = models.IntegerField(default=1)
    price: models.DecimalField[Decimal, Decimal] = models.DecimalField(max_digits=8, decimal_places=2, default="9.50")
    shelf: models.CharField[str, str] = models.CharField(max_length=20, default="A1")
    since: models.DateField[date | None, date | None] = models.DateField(null=True)
    seen: models.DateTimeField[datetime | None, datetime | None] = models.DateTimeField(null=True)
    kept: models.BooleanField[bool, bool] = models.BooleanField(default=True)
    tags = models.JSONField(default=list)
