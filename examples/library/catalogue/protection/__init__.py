"""How the site protects itself from lost updates: LIBRARY_PROTECTION chooses one of three ways.

This module exists so that they can be compared. A real site has none: it imports the same names from
`interlock.django`.

none: `save()` is Django's, and nothing is locked.
guarded: `Guarded` stands before `models.Model` in each model.
occupy: and whatever decides by more than one row occupies the book first.
"""

from typing import TYPE_CHECKING, Any

from django.conf import settings

GUARDS = settings.PROTECTION in ("guarded", "occupy")
OCCUPIES = settings.PROTECTION == "occupy"

if TYPE_CHECKING or GUARDS:
    from interlock.django.guarded import Guarded
else:

    class Guarded:
        """Guards nothing."""


if TYPE_CHECKING or OCCUPIES:
    from interlock.django import occupy
else:
    from contextlib import nullcontext

    def occupy(instance: Any, **how: Any) -> Any:
        """Lock nothing, and use the instance as it was read."""
        return nullcontext(instance)


__all__ = ["GUARDS", "OCCUPIES", "Guarded", "occupy"]
