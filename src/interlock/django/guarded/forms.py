"""Forms of guarded models: two people edit one object, and no work is lost.

Another user may change the object after a form was shown and before it is submitted. So the form contains, in a
hidden field, the values that it has shown, and a digest of each value that it has but does not show (a password). A
field that the user did not change keeps its present value; for a field that both have changed, the user sees both
values and chooses.
"""

import copy
import json
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, time
from typing import Any, Final

from django import forms
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import FileField, JSONField, Model
from django.forms.models import InlineForeignKeyField
from django.forms.widgets import ChoiceWidget
from django.utils import formats
from django.utils.crypto import salted_hmac
from django.utils.encoding import force_str
from django.utils.functional import cached_property
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.timezone import template_localtime  # type: ignore[attr-defined] # as templates show it
from django.utils.translation import gettext as _

from interlock.django.guarded.conflicts import LAST_WINS, CannotMerge
from interlock.django.guarded.model import Guarded
from interlock.django.guarded.model_fields import plan_of
from interlock.django.guarded.values import AnyField, same

READ: Final = "interlock_read"
"""The name of the hidden field with the values that a form has shown."""

SAVE_ATTEMPTS: Final = 3
"""How often a submitted form is checked again if the object changes during the save."""

_KEEP: Final = "interlock_keep_"
_MINE, _THEIRS = "mine", "theirs"


class ReadField(forms.CharField):
    """The hidden field with the values that a form shows; its own submitted value is not shown again."""

    widget = forms.HiddenInput
    token: Callable[[], str] = str

    def prepare_value(self, value: object) -> str:
        """Return the signed values for the hidden field."""
        return self.token()


class GuardedModelForm(forms.ModelForm):  # type: ignore[type-arg] # can't be subscripted at run time
    """A `ModelForm` of a guarded model that detects changes since it was shown.

    A field that the user has not changed keeps its present value. For a field that both have changed, the model's
    `on_stale` decides; if that refuses, the form is shown again with both values, and the user chooses. Many-to-many
    fields behave as in any form.
    """

    interlock_read = ReadField(required=False, strip=False, label="")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._note_fresh()
        read = self.fields.get(READ)
        if isinstance(read, ReadField):
            read.token = self.read_token

    def _note_fresh(self) -> None:
        """Record the object's present values, before the submitted ones are set on it."""
        self._now: Model = copy.copy(self.instance)
        self._sent: Mapping[str, Any] = {"shown": {}, "asked": []}
        self._asked: set[str] = set()
        self._kept: set[str] = set()
        self._broken = ""

    @cached_property
    def _guarded_fields(self) -> dict[str, Any]:
        """The model's fields that are checked for changes, by name."""
        if not isinstance(self.instance, Guarded) or self.instance._state.adding:
            return {}
        return {
            field.name: field
            for field in self.instance._meta.concrete_fields
            if field.name in self.fields
            and field.editable
            and not field.primary_key
            and not isinstance(self.fields[field.name], InlineForeignKeyField)
        }

    def read_token(self) -> str:
        """Return the values that this form shows, signed, for the hidden field."""
        if self.is_bound:
            self.errors  # noqa: B018 - cleans the form, which says what is to be asked
        if self._broken or not self._guarded_fields:
            return self._broken
        now = {name: self._taken(name, field) for name, field in self._guarded_fields.items()}
        # A form that is shown again shows the submitted values, which are based on the values shown first; except for
        # the fields of which the user now sees both values.
        first = {name: taken for name, taken in self._sent["shown"].items() if name not in self._asked}
        return signing.dumps({"shown": now | first, "asked": sorted(self._asked)}, salt=self._salt(), compress=True)

    def _taken(self, name: str, field: AnyField) -> "list[object] | str":
        """Return the entry of a field in the hidden field: its value in a list, or the digest of a hidden value."""
        entry = self._entry(field, self._now)
        return entry if shows_value(self[name], field.value_from_object(self._now)) else self._digest(name, entry)

    def _entry(self, field: AnyField, instance: Model) -> list[object]:
        """Return a field's value, and the digest of the other fields of its group that are not in the form."""
        plan = plan_of(type(self.instance))
        mates = [plan.by_attname[attname] for attname in sorted(plan.together.get(field.attname, ()))]
        rest = [to_text(mate, instance) for mate in mates if mate.name not in self._guarded_fields]
        return [to_text(field, instance), *([self._digest(field.name, rest)] if rest else [])]

    def _digest(self, name: str, text: object) -> str:
        """Return a keyed digest of a value, by which it can be compared but not read."""
        return salted_hmac(f"{self._salt()}:{name}", json.dumps(text), algorithm="sha256").hexdigest()[:32]

    def _salt(self) -> str:
        return f"interlock.form:{self.instance._meta.label_lower}:{self.instance.pk}"

    def _read_sent(self) -> None:
        """Read the values that the submitted form had shown, from its hidden field if it has one."""
        text = self.cleaned_data.pop(READ, "")
        if not text or not self._guarded_fields:
            return
        try:
            self._sent = signing.loads(text, salt=self._salt())
        except signing.BadSignature:
            self._broken = text
            message = _("This form is not the one that was shown for this object. Please open the page anew.")
            self.add_error(None, ValidationError(message, code="interlock_read"))

    def _post_clean(self) -> None:
        self._read_sent()
        choices = [
            _Choice(self, field, self._sent)
            for name, field in self._guarded_fields.items()
            if name in self._sent["shown"] and name in self.cleaned_data
        ]
        touched = {choice.attname for choice in choices if choice.touched}
        for choice in choices:
            self._settle(choice, not touched.isdisjoint(choice.together))
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            # The page is shown once more: keep the user's choices in it.
            for choice in choices:
                if choice.answer == _THEIRS and choice.name not in self.errors:
                    self._ask(choice)

    def _settle(self, choice: "_Choice", with_mates: bool) -> None:
        """Decide which value of one submitted field is saved.

        Args:
            with_mates: True if the user has changed another field of the same group.
        """
        name = choice.name
        if choice.answer == _THEIRS or not (choice.touched or (with_mates and not choice.is_unchanged)):
            # Keep the present value: Django does not set a field on the object that is not in cleaned_data.
            del self.cleaned_data[name]
            self._kept.add(name)
        elif choice.stale and choice.policy is not LAST_WINS:
            try:
                self.cleaned_data[name] = choice.merged()
            except CannotMerge:
                self._ask(choice)

    def _ask(self, choice: "_Choice") -> None:
        """Add an error that shows both values of a field and lets the user choose."""
        self._asked.add(choice.name)
        self.add_error(choice.name, ValidationError(choice.question(), code="stale"))

    @property
    def changed_data(self) -> list[str]:
        """The names of the fields that this form changes."""
        found: list[str] = super().changed_data
        return [name for name in found if name not in self._kept and name != READ]

    def recheck(self) -> None:
        """Read the object again, and clean the form again, after `save()` has raised `StaleObject`.

        Conflicts are errors of the form then, to be shown; if there are none, call `save()` again.
        """
        try:
            self.instance.refresh_from_db()
        except type(self.instance).DoesNotExist:
            self.add_error(None, ValidationError(_("Somebody else has deleted this meanwhile."), code="stale"))
            return
        self._note_fresh()
        self.full_clean()


class _Choice:
    """One submitted field: the value that was shown, the submitted one, and the object's present one."""

    def __init__(self, form: GuardedModelForm, field: AnyField, token: Mapping[str, Any]) -> None:
        self._form = form
        self._field = field
        self.name: str = field.name
        self.attname: str = field.attname
        self._bound = form[self.name]
        self._cleaned = form.cleaned_data[self.name]
        plan = plan_of(type(form.instance))
        self.policy = plan.policies[field.attname]
        self.together: Collection[str] = plan.together.get(field.attname, ())
        self.theirs = getattr(form._now, field.attname)
        self._taken: list[Any] | str = token["shown"][self.name]
        if isinstance(self._taken, list):
            self.original = from_text(field, self._taken[0])
        else:
            unchanged = self._taken == form._digest(self.name, form._entry(field, form._now))
            self.original = self.theirs if unchanged else UNKNOWN
        self._must_answer = self.name in token["asked"]
        answer = form.data.get(form.add_prefix(_KEEP + self.name)) if self._must_answer else None
        self.answer: str | None = answer if answer in (_MINE, _THEIRS) else None

    @cached_property
    def touched(self) -> bool:
        """True if the user has changed the shown value."""
        if self.original is UNKNOWN:
            if isinstance(self._field, FileField):
                return bool(self._bound.field.has_changed(None, self._bound.data))
            return self._taken != self._form._digest(self.name, self._form._entry(self._field, self._with_mine))
        shown_object = copy.copy(self._form._now)
        setattr(shown_object, self._field.attname, self.original)
        initial = self._field.value_from_object(shown_object)
        if isinstance(initial, datetime | time) and not self._bound.field.widget.supports_microseconds:
            initial = initial.replace(microsecond=0)  # as a bound field does
        return bool(self._bound.field.has_changed(initial, self._bound.data))

    @property
    def mine(self) -> object:
        """The submitted value, as a value of the model's field."""
        return getattr(self._with_mine, self._field.attname)

    @cached_property
    def _with_mine(self) -> Any:
        """The object, with the submitted value."""
        scratch = copy.copy(self._form._now)
        scratch._state = copy.copy(scratch._state)
        scratch._state.fields_cache = {}
        self._field.save_form_data(scratch, self._cleaned)
        return scratch

    @cached_property
    def stale(self) -> bool:
        """True if the submitted and the stored value differ, and another writer or an open choice is the reason."""
        alike = same(self._field, self.mine, self.theirs, ordered=False) and (
            self._rest(self._with_mine) == self._rest(self._form._now)
        )
        return not alike and (not self.is_unchanged or (self._must_answer and self.answer is None))

    @property
    def is_unchanged(self) -> bool:
        """True if the object still has the value that was shown."""
        return (
            self.original is not UNKNOWN
            and same(self._field, self.original, self.theirs, ordered=False)
            and (isinstance(self._taken, str) or self._taken[1:] == self._rest(self._form._now))
        )

    def _rest(self, instance: Model) -> list[object]:
        return self._form._entry(self._field, instance)[1:]

    def merged(self) -> object:
        """Return the result of the policy for the values.

        Raises:
            CannotMerge: the policy refuses, or can't merge these values.
        """
        if self._field.is_relation or self.together or not callable(self.policy) or self.original is UNKNOWN:
            raise CannotMerge("only a function merges, only plain values, and only values that were shown")
        return self.policy(self.original, self.mine, self.theirs)

    def question(self) -> SafeString:
        """Return the HTML that asks the user to choose."""
        known = self.original is not UNKNOWN
        hidden = not self._field.is_relation and not (known and shows_value(self._bound, self.theirs))
        context = {"name": self._form.add_prefix(_KEEP + self.name), "chosen": self.answer, "hidden": hidden}
        if not hidden:
            rows = getattr(self._bound.field, "queryset", None)
            context |= {"mine": shown(self._field, self.mine, rows), "theirs": shown(self._field, self.theirs, rows)}
            if known and not self._must_answer and not self.is_unchanged:
                context["original"] = shown(self._field, self.original, rows)
        return mark_safe(self._form.renderer.render("interlock/stale_field.html", context).strip())


def guarded_form(form: Any) -> Any:
    """Return a form class that is also a `GuardedModelForm`."""
    if issubclass(form, GuardedModelForm):
        return form
    return type(form)(form.__name__, (GuardedModelForm, form), {"__module__": form.__module__})


_LONGEST = 301
"""Characters of a text that a conflict shows, with an ellipsis; the form field has the whole text."""


def shown(field: AnyField, value: object, rows: models.QuerySet[models.Model] | None = None) -> str:
    """Return a value as text for people: a choice by its label, a related object by its `str`.

    Args:
        field: the model's field.
        value: the value of the field.
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
    return Truncator(formats.localize(template_localtime(value))).chars(_LONGEST)


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
"""Stands for the shown value if only its digest is known, and differs from the present value's digest."""


def shows_value(bound: forms.BoundField, value: object) -> bool:
    """Return True if a form shows the value of a field, so that the hidden field discloses nothing new."""
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
            return False  # the value is not among the choices
    elif isinstance(widget, ChoiceWidget) and not _is_an_option(bound, value):
        return False
    module = type(widget).__module__
    # Django's password widget shows only parts of the hash.
    if module.startswith(("django.forms.", "django.contrib.")) and not module.startswith("django.contrib.auth."):
        return True
    page = widget.render(bound.html_name, value, {})
    parts = value if isinstance(value, list) else [value]
    return value not in field.empty_values and all(conditional_escape(force_str(each)) in page for each in parts)


def _is_an_option(bound: forms.BoundField, value: object) -> bool:
    """Return True if a value is empty, or all of it is among the options of a widget."""
    if value in bound.field.empty_values:
        return True
    widget: Any = bound.field.widget
    wanted = widget.format_value(value)
    groups = widget.optgroups(bound.html_name, wanted)
    chosen = {str(option["value"]) for _, options, _ in groups for option in options if option["selected"]}
    return chosen.issuperset([wanted] if isinstance(wanted, str) else wanted)


def to_text(field: AnyField, instance: Model) -> object:
    """Serialize a field's value to a text (or None); `from_text` reads it."""
    value = field.value_from_object(instance)
    if value is None:
        return None
    # django-money returns a number, so the text is made by `force_str`.
    return (
        json.dumps(value, cls=field.encoder)
        if isinstance(field, JSONField)
        else force_str(field.value_to_string(instance))
    )


def from_text(field: AnyField, text: str | None) -> object:
    """Parse a text of `to_text`."""
    if text is None:
        return None
    return json.loads(text, cls=field.decoder) if isinstance(field, JSONField) else field.to_python(text)
