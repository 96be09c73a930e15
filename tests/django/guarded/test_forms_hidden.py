"""Forms that hide a value or show another one: it stays hidden, and changes of others are found."""

from typing import Any

import pytest
from django import forms
from django.contrib.auth.forms import ReadOnlyPasswordHashField
from django.contrib.auth.hashers import make_password
from django.core import signing
from guarded.library.models import Author, Book
from guarded.pages import late, page_of, saved, sent

from interlock.django.guarded.forms import READ, GuardedModelForm, shows_value


class Masked(forms.TextInput):
    """A custom widget that hides its value."""

    def format_value(self, value: Any) -> str:
        return "****"


class SecretForm(GuardedModelForm):
    class Meta:
        model = Book
        fields = ["name", "notes", "author"]
        widgets = {"notes": forms.PasswordInput}


class MaskedForm(GuardedModelForm):
    class Meta:
        model = Book
        fields = ["name", "notes"]
        widgets = {"notes": Masked}


class HashForm(GuardedModelForm):
    notes = ReadOnlyPasswordHashField()

    class Meta:
        model = Book
        fields = ["name", "notes"]


class ChoiceForm(GuardedModelForm):
    notes = forms.ChoiceField(choices=[("a", "A"), ("some", [("b", "B")])])

    class Meta:
        model = Book
        fields = ["name", "notes"]


class SelectForm(GuardedModelForm):
    class Meta:
        model = Book
        fields = ["name", "notes"]
        widgets = {"notes": forms.Select(choices=[("a", "A")])}


class TestWhatIsNotShown:
    """The server sends only a digest of a value that the page does not show."""

    @pytest.fixture
    def book(self) -> Book:
        return Book.objects.create(name="naem", notes="the secret", author=Author.objects.create(name="Ann"))

    def told(self, form: Any) -> str:
        """Return all that a page contains, also the signed data."""
        token = form[READ].value()
        said = signing.loads(token, salt=form._salt()) if token else ""
        return f"{said} {form.as_p()} {form.errors}"

    @pytest.mark.parametrize("form_class", [SecretForm, MaskedForm, HashForm, ChoiceForm, SelectForm])
    def test_it_is_not_taken_along(self, book: Book, form_class: Any) -> None:
        assert "the secret" not in self.told(form_class(instance=book))
        assert "naem" in self.told(form_class(instance=book))

    def test_the_hash_of_a_password_is_not_taken_along(self, book: Book) -> None:
        book.notes = make_password("the secret")
        assert book.notes not in self.told(HashForm(instance=book))

    def test_a_conflict_does_not_show_a_value_that_no_choice_has(self, book: Book) -> None:
        form = late({"status": "free"}, {"status": "lost-and-found"})
        assert set(form.errors) == {"status"}
        assert "lost-and-found" not in self.told(form)

    @pytest.mark.parametrize("value", ["a", "b"])
    def test_a_choice_that_is_shown_is(self, book: Book, value: str) -> None:
        book.notes = value
        assert shows_value(ChoiceForm(instance=book)["notes"], value)

    @pytest.mark.parametrize("form_class", [SecretForm, MaskedForm])
    def test_a_conflict_shows_neither_value(self, book: Book, form_class: Any) -> None:
        form = late({"notes": "mine"}, {"notes": "their secret"}, form_class)
        assert set(form.errors) == {"notes"}
        assert "secret" not in self.told(form)
        assert "keep mine" in self.told(form)

    @pytest.mark.parametrize(("answer", "notes"), [("mine", "mine"), ("theirs", "their secret")])
    def test_the_reader_chooses_unseen(self, book: Book, answer: str, notes: str) -> None:
        page = page_of(late({"notes": "mine"}, {"notes": "their secret"}, SecretForm))
        again = {**page, "notes": "mine", "interlock_keep_notes": answer}
        assert saved(sent(again, SecretForm)).notes == notes

    def test_what_was_typed_as_it_stood_is_no_change(self, book: Book) -> None:
        form = late({"notes": "the secret"}, {"notes": "their secret"}, SecretForm)
        assert saved(form).notes == "their secret"

    def test_a_related_object_that_is_no_choice_is_not_shown(self, book: Book) -> None:
        class Form(GuardedModelForm):
            author = forms.ModelChoiceField(Author.objects.exclude(name="Hidden"), required=False)

            class Meta:
                model = Book
                fields = ["name", "author"]

        other = Author.objects.create(name="Bob")
        form = late({"author": str(other.pk)}, {"author": Author.objects.create(name="Hidden")}, Form)
        assert set(form.errors) == {"author"}
        assert "Hidden" not in self.told(form)
        assert "something that is not shown here" in self.told(form)
