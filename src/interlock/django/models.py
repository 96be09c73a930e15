"""The table of claims; what it means is in `interlock.core.pending`, how it is written in `register`."""

from datetime import UTC, datetime

from django.db import models

from interlock.core.claims import DONE, PENDING, QUEUED, USING, kind_of


class Claim(models.Model):
    """One record of the pending protocol; the times are microseconds since the epoch.

    Names are hashed into `key`, all 256 bits: collations that know no case, and limits of indexes, must not make
    two names one.
    """

    number: "models.BigAutoField[int, int]" = models.BigAutoField(primary_key=True)
    claim: "models.CharField[str, str]" = models.CharField("id", max_length=64, db_column="id")
    key: "models.CharField[str, str]" = models.CharField(max_length=64)
    namespace: "models.TextField[str, str]" = models.TextField(blank=True)
    name: "models.TextField[str, str]" = models.TextField()
    state: "models.CharField[str, str]" = models.CharField(
        max_length=7,
        choices=[(PENDING, "Pending"), (QUEUED, "Queued"), (USING, "Using"), (DONE, "Done")],
    )
    units: "models.BigIntegerField[int, int]" = models.BigIntegerField()
    capacity: "models.BigIntegerField[int, int]" = models.BigIntegerField()
    fence: "models.BigIntegerField[int | None, int | None]" = models.BigIntegerField(null=True)
    host: "models.CharField[str, str]" = models.CharField(max_length=255)
    pid: "models.BigIntegerField[int, int]" = models.BigIntegerField()
    thread: "models.CharField[str, str]" = models.CharField(max_length=255, blank=True)
    label: "models.CharField[str, str]" = models.CharField(max_length=255, blank=True)
    since: "models.BigIntegerField[int, int]" = models.BigIntegerField(
        help_text="By the clock of the host that made the claim."
    )
    until: "models.BigIntegerField[int, int]" = models.BigIntegerField(
        help_text="End of the lease, by the clock of the database."
    )

    class Meta:
        db_table = "interlock_claim"
        default_permissions = ("view",)
        permissions = [("evict_claim", "Can evict claims")]
        constraints = [
            models.UniqueConstraint(fields=["claim"], name="interlock_claim_id"),
            # Two who may hold a lock together must not get the same fence; those who wait have none.
            models.UniqueConstraint(fields=["key", "fence"], name="interlock_claim_fence"),
        ]
        indexes = [models.Index(fields=["key", "state"], name="interlock_claim_line")]

    def __str__(self) -> str:
        return f"{self.name} ({self.state}, {self.host} {self.pid})"

    @property
    def kind(self) -> str:
        """The kind of lock in words: exclusive, reader, writer, or semaphore k/n."""
        return kind_of(self.units, self.capacity)

    @property
    def made_at(self) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self.since / 1e6, UTC)
