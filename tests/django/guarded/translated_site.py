"""A site with django-modeltranslation and a guarded model; `test_descriptor_fields` runs it."""

import os
import sys
from tempfile import TemporaryDirectory

import django
import pytest
from django.conf import settings

FILES = {
    "__init__": "",
    "models": """
from django.db import models
from interlock.django.guarded import Guarded


class Book(Guarded, models.Model):
    name = models.CharField(max_length=50)
    notes = models.CharField(max_length=50, default="")
""",
    "translation": """
from modeltranslation.translator import TranslationOptions, register
from .models import Book


@register(Book)
class BookOptions(TranslationOptions):
    fields = ("name",)
""",
}


def story(folder: str) -> None:
    os.mkdir(folder + "/lib")
    for name, text in FILES.items():
        with open(f"{folder}/lib/{name}.py", "w") as file:
            file.write(text)
    sys.path.insert(0, folder)
    settings.configure(
        SECRET_KEY="only for tests",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        LANGUAGES=(("en", "English"), ("de", "Deutsch")),
        LANGUAGE_CODE="en",
        INSTALLED_APPS=["django.contrib.contenttypes", "modeltranslation", "interlock.django", "lib"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder + "/db"}},
    )
    django.setup()
    from django.core.management import call_command
    from django.utils.translation import override
    from lib.models import Book  # type: ignore[import-not-found]

    from interlock.django.guarded import StaleObject, changes

    call_command("migrate", run_syncdb=True, verbosity=0)

    def columns(pk: int) -> tuple[str, ...]:
        found: tuple[str, ...] = Book.objects.filter(pk=pk).values_list("name_en", "name_de", "notes").get()
        return found

    # One writer saves the same instance repeatedly: read, newly made and refreshed, in both languages.
    made = Book.objects.create(name="old")
    read = Book.objects.get(pk=made.pk)
    for number, book in enumerate((read, made)):
        book.refresh_from_db()
        for attribute, value in (
            ("name_en", "e1"),
            ("name_en", "e2"),
            ("name_de", "d2"),
            ("name", "n3"),
            ("notes", "x"),
        ):
            setattr(book, attribute, f"{value} {number}")
            assert changes(book), attribute
            book.save()
            assert changes(book) == {}, attribute
        with override("de"):
            book.name = "neu"
            book.save()
        book.notes += "y"
        book.save()
        assert columns(book.pk) == (book.name_en, "neu", book.notes)
        assert book.name == f"n3 {number}"

    # Two write two languages, of a row that was made in the second.
    with override("de"):
        made = Book.objects.create(name="neu")
    one, two, three = (Book.objects.get(pk=made.pk) for _ in range(3))
    one.name_en = "one"
    one.save()
    two.name_de = "zwei"
    two.save()
    assert columns(made.pk) == ("one", "zwei", "")

    # Two write one.
    three.name_en = "three"
    with pytest.raises(StaleObject) as caught:
        three.save()
    assert "name_en" in caught.value.fields
    assert columns(made.pk) == ("one", "zwei", "")
    print("translated")


with TemporaryDirectory() as folder:
    story(folder)
