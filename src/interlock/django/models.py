"""The model of claims: for permissions, routers and the admin; the lines of all stores are read by `Locks.claims`."""

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

    def __str__(self) -> str:
        return self.name
