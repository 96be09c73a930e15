"""Values of fields as people read them."""

from typing import Any

from django.core.exceptions import ValidationError
from django.utils import formats
from django.utils.encoding import force_str
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _

_LONGEST = 300
"""Characters of a text that are shown; its form field has all of it."""


def shown(field: Any, value: Any, rows: Any = None) -> str:
    """Return a value of a model's field as a person reads it: a choice by its name, a related object by its own.

    Args:
        field: of the model.
        value: of the field.
        rows: the related objects that may be shown; None for all.
    """
    if value is None or value == "":
        return _("nothing")
    if field.choices:
        return force_str(dict(field.flatchoices).get(value, value))
    if field.is_relation:
        return _related(field, value, rows)
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if hasattr(value, "tzinfo") and hasattr(value, "date") and is_aware(value):
        value = localtime(value)
    text = force_str(formats.localize(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _related(field: Any, key: Any, rows: Any) -> str:
    among = field.remote_field.model._base_manager.all() if rows is None else rows
    try:
        found = among.filter(**{field.target_field.name: key}).first()
    except (ValueError, TypeError, ValidationError):
        found = None
    if found is None and rows is not None:
        return _("something that is not shown here")
    return force_str(key if found is None else found)
