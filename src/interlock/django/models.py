"""The models: claims, for permissions, routers and the admin; and the records of `orm:`."""

from datetime import datetime

from django.db import models


class Claim(models.Model):
    """A claim as the admin and its log know it; it has no table of its own.

    Which database the routers write it to is where the locks are that INTERLOCK gives no place.
    """

    claim: "models.CharField[str, str]" = models.CharField("id", max_length=64, primary_key=True)
    name: "models.TextField[str, str]" = models.TextField()

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = [("evict_claim", "Can evict claims")]


class Record(models.Model):
    """One record of the pending protocol, for `orm:`; the `number` is its place in the order.

    Names are hashed into `key`, all 256 bits: collations that know no case, and limits of indexes, must not make
    two names one.  A record that is `done` keeps the highest fence of its name.
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
