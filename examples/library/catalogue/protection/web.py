"""The chosen protection of view sets and of the admin."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from django.contrib import admin

from catalogue.protection import GUARDS, OCCUPIES

if TYPE_CHECKING or GUARDS:
    from interlock.django.guarded.admin import GuardedAdmin, GuardedInline
    from interlock.django.rest import GuardedViewSetMixin
else:
    GuardedAdmin = admin.ModelAdmin

    class GuardedInline:
        """Guards nothing."""

    class GuardedViewSetMixin:
        """Guards nothing."""


if TYPE_CHECKING or OCCUPIES:
    from interlock.django.rest import OccupiedViewSetMixin
else:

    class OccupiedViewSetMixin:
        """Occupies nothing."""

        def occupied(self) -> Any:
            """Lock nothing."""
            return nullcontext()


__all__ = ["GuardedAdmin", "GuardedInline", "GuardedViewSetMixin", "OccupiedViewSetMixin"]
