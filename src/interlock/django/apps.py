"""The Django app: put "interlock.django" into INSTALLED_APPS."""

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.utils.translation import gettext_lazy as _


class InterlockConfig(AppConfig):
    """The app `interlock`: the table of claims, its admin, checks and the command."""

    name = "interlock.django"
    label = "interlock"
    verbose_name = _("Locks")

    def ready(self) -> None:
        """Register the checks, and react to tests that override the setting."""
        from interlock.django import checks  # noqa: F401 - registers by being imported
        from interlock.django.configured import forget_connections

        setting_changed.connect(forget_connections, dispatch_uid="interlock")
