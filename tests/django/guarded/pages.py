"""A form of books, and the data that a browser sends from its page."""

from typing import Any

from django import forms
from guarded.library.models import Book

from interlock.django.guarded.forms import GuardedModelForm


class BookForm(GuardedModelForm):
    class Meta:
        model = Book
        fields = ["name", "status", "notes", "copies", "due", "author", "tags", "cover"]

    def clean_notes(self) -> str:
        notes: str = self.cleaned_data["notes"]
        if notes == "wrong":
            raise forms.ValidationError("wrong notes")
        return notes


def page_of(form: Any) -> dict[str, Any]:
    """Return the data that a browser sends from an unchanged form."""
    sent = {}
    for field in form:
        value = field.value()
        if value is not None and not isinstance(field.field, forms.FileField):
            sent[field.html_name] = field.field.widget.format_value(value) if field.name == "due" else value
            if isinstance(sent[field.html_name], list):
                sent[field.html_name] = str(value)
    return sent


def shown(form_class: Any = BookForm, model: Any = Book) -> dict[str, Any]:
    """Show the form of the only object; return the data that its unchanged page would send."""
    return page_of(form_class(instance=model.objects.get()))


def sent(page: dict[str, Any], form_class: Any = BookForm, model: Any = Book, **files: Any) -> Any:
    """Send a page."""
    return form_class(page, files, instance=model.objects.get())


def late(mine: dict[str, Any], theirs: dict[str, Any], form_class: Any = BookForm, model: Any = Book) -> Any:
    """Show the only object, let another user change it, and send the page with what its reader has typed."""
    page = {**shown(form_class, model), **mine}
    model.objects.update(**theirs)
    return sent(page, form_class, model)


def saved(form: Any) -> Any:
    """Save a valid form; return its object as it was stored."""
    assert form.is_valid(), form.errors
    form.save()
    return form._meta.model.objects.get()
