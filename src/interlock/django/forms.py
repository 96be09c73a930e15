"""The import path `interlock.django.forms`; the module is `interlock.django.guarded.forms`."""

from interlock.django.guarded.forms import READ, GuardedModelForm, ReadField

__all__ = ["READ", "GuardedModelForm", "ReadField"]
