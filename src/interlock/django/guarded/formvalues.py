"""Values of fields, as the hidden field of a form takes them along and as people read them."""

import json
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import JSONField, Model
from django.forms.widgets import ChoiceWidget
from django.utils import formats
from django.utils.encoding import force_str
from django.utils.html import conditional_escape
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _

from interlock.django.guarded.values import AnyField

_LONGEST = 300
"""Characters of a text that are shown; its form field has all of it."""


def shown(field: AnyField, value: Any, rows: models.QuerySet[models.Model] | None = None) -> str:
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


def _related(field: Any, key: object, rows: models.QuerySet[models.Model] | None) -> str:
    among = field.remote_field.model._base_manager.all() if rows is None else rows
    try:
        found = among.filter(**{field.target_field.name: key}).first()
    except (ValueError, TypeError, ValidationError):
        found = None
    if found is None and rows is not None:
        return _("something that is not shown here")
    return force_str(key if found is None else found)


UNKNOWN: Final = object()
"""What was shown, if only its digest is known, and that of the value now is another."""


def shows_value(bound: forms.BoundField, value: object) -> bool:
    """True if a form that shows a field shows its value too, so that nothing is told by taking it along."""
    field, widget = bound.field, bound.field.widget
    if isinstance(widget, forms.PasswordInput):
        return bool(widget.render_value)
    if isinstance(widget, forms.FileInput) and not isinstance(widget, forms.ClearableFileInput):
        return False
    value = field.prepare_value(value)
    if isinstance(field, forms.ModelChoiceField) and value not in field.empty_values:
        try:
            field.to_python(value)
        except ValidationError:
            return False  # the choices don't have it
    elif isinstance(widget, ChoiceWidget) and not _is_an_option(bound, value):
        return False
    module = type(widget).__module__
    # The widget of a password shows no more than parts of its hash.
    if module.startswith(("django.forms.", "django.contrib.")) and not module.startswith("django.contrib.auth."):
        return True
    page = widget.render(bound.html_name, value, {})
    parts = value if isinstance(value, list) else [value]
    return value not in field.empty_values and all(conditional_escape(force_str(each)) in page for each in parts)


def _is_an_option(bound: forms.BoundField, value: object) -> bool:
    """True if a value is empty, or all of it is among the options that a widget offers."""
    if value in bound.field.empty_values:
        return True
    widget: Any = bound.field.widget
    wanted = widget.format_value(value)
    groups = widget.optgroups(bound.html_name, wanted)
    chosen = {str(option["value"]) for _, options, _ in groups for option in options if option["selected"]}
    return chosen.issuperset([wanted] if isinstance(wanted, str) else wanted)


def to_text(field: AnyField, instance: Model) -> Any:
    """Return a field's value as a text (or None) from which `from_text` makes it again."""
    value = field.value_from_object(instance)
    if value is None:
        return None
    if isinstance(field, JSONField):
        return json.dumps(value, cls=field.encoder)
    return field.value_to_string(instance)


def from_text(field: AnyField, text: str | None) -> Any:
    """Return the value of which `to_text` has made a text."""
    if text is None:
        return None
    if isinstance(field, JSONField):
        return json.loads(text, cls=field.decoder)
    return field.to_python(text)
