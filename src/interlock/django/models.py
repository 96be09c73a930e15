"""The models: claims, for permissions, routers and the admin; records, for `orm:`."""

from datetime import datetime

from django.db import models


class NoRows(models.Manager["Claim"]):
    """The manager of a model without a table: no rows, so that `dumpdata` and other tools can read all models."""

    def get_queryset(self) -> "models.QuerySet[Claim]":
        """Return an empty query set, which sends no query."""
        return super().get_queryset().none()


class Claim(models.Model):
    """A claim, for the admin and its log; the model has no table.

    The database to which the routers write this model has the locks of entries of INTERLOCK without a store.
    """

    claim: "models.CharField[str, str]" = models.CharField("id", max_length=64, primary_key=True)
    name: "models.TextField[str, str]" = models.TextField()

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)
        permissions = [("evict_claim", "Can evict claims")]


class Record(models.Model):
    """One record of the pending protocol, for `orm:`; records are ordered by `number`.

    `key` is the SHA-256 of the name: a collation without case or an index prefix could take two names for one.  A
    record that is `done` keeps the highest fence of its name.
    """

    number: "models.BigAutoField[int, int]" = models.BigAutoField(primary_key=True)
    claim: "models.CharField[str, str]" = models.CharField(max_length=64, unique=True)
    key: "models.CharField[str, str]" = models.CharField(max_length=64, db_index=True)
    namespace: "models.TextField[str, str]" = models.TextField(blank=True)
    name: "models.TextField[str, str]" = models.TextField()
    state: "models.CharField[str, str]" = models.CharField(max_length=7)
    units: "models.BigIntegerField[int, int]" = models.BigIntegerField()
    capacity: "models.BigIntegerField[int, int]" = models.BigIntegerField()
    fence: "models.BigIntegerField[int, int]" = models.BigIntegerField(default=0)
    host: "models.CharField[str, str]" = models.CharField(max_length=255, blank=True)
    pid: "models.BigIntegerField[int, int]" = models.BigIntegerField()
    thread: "models.CharField[str, str]" = models.CharField(max_length=255, blank=True)
    label: "models.CharField[str, str]" = models.CharField(max_length=255, blank=True)
    since: "models.BigIntegerField[int, int]" = models.BigIntegerField()  # microseconds since the epoch
    until: "models.DateTimeField[datetime, datetime]" = models.DateTimeField()  # by the clock of the database

    class Meta:
        db_table = "interlock_record"
        default_permissions = ()
