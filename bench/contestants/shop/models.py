"""The same thirteen columns, plain and guarded."""

from __future__ import annotations

from django.db import models

from interlock.django.guarded import Guarded


class Columns(models.Model):
    """What both have."""

    title = models.CharField(max_length=200, default="title")
    author = models.CharField(max_length=200, default="author")
    status = models.CharField(max_length=20, default="free")
    notes = models.TextField(default="")
    year = models.IntegerField(default=1900)
    copies = models.IntegerField(default=1)
    price = models.DecimalField(max_digits=8, decimal_places=2, default="9.50")
    shelf = models.CharField(max_length=20, default="A1")
    since = models.DateField(null=True)
    seen = models.DateTimeField(null=True)
    kept = models.BooleanField(default=True)
    tags = models.JSONField(default=list)

    class Meta:
        abstract = True


class Plain(Columns):
    """Saves every column, as Django does."""


class Kept(Guarded, Columns):
    """Saves what has changed."""
