"""A Django site for the examples of pages, in the folder of a test, on SQLite."""

import sys
from pathlib import Path
from typing import Any

MODELS = """
from django.db import models
from interlock.django.fenced import FenceField
from interlock.django.guarded import Guarded

class Author(models.Model):
    name = models.CharField(max_length=100)

class Book(Guarded, models.Model):
    name = models.CharField(max_length=100)
    status = models.CharField(max_length=20, default="use")
    copies = models.IntegerField(default=3)
    lent = models.IntegerField(default=2)

class Copy(Guarded, models.Model):
    book = models.ForeignKey(Book, models.CASCADE)

class Reader(models.Model):
    name = models.CharField(max_length=100)

class Reservation(models.Model):
    book = models.ForeignKey(Book, models.CASCADE)
    reader = models.ForeignKey(Reader, models.CASCADE)

class Account(Guarded, models.Model):
    balance = models.IntegerField()
    fence = FenceField()
"""
MANAGE = """#!{python}
import sys
sys.path[:0] = {path!r}
from tests.docs.django_site import set_up
from pathlib import Path
set_up(Path({folder!r}))
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


def set_up(folder: Path) -> None:
    """Configure Django for the site in `folder`."""
    import django
    from django.conf import settings

    sys.path.insert(0, str(folder))
    contrib = [f"django.contrib.{app}" for app in ("admin", "auth", "contenttypes", "messages", "sessions")]
    settings.configure(
        INSTALLED_APPS=[*contrib, "rest_framework", "interlock.django", "shelf"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "db.sqlite3")}},
        SECRET_KEY="only for tests", USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        ROOT_URLCONF="shelf.urls",
    )  # fmt: skip
    django.setup()


def make_site(folder: Path) -> dict[str, Any]:
    """Make a site with a table for each model and a row in each; return names that examples of pages use."""
    (folder / "shelf").mkdir()
    (folder / "shelf" / "__init__.py").touch()
    (folder / "shelf" / "urls.py").write_text("urlpatterns = []\n")
    (folder / "shelf" / "models.py").write_text(MODELS)
    manage = folder / "manage.py"
    manage.write_text(MANAGE.format(python=sys.executable, path=sys.path, folder=str(folder)))
    manage.chmod(0o755)
    set_up(folder)
    from django.core.management import call_command
    from django.db import models
    from shelf.models import Account, Author, Book, Copy, Reader, Reservation  # type: ignore[import-not-found]

    call_command("migrate", run_syncdb=True, verbosity=0)
    book = Book.objects.create(name="Emma")
    reader = Reader.objects.create(name="Ada")
    Account.objects.create(pk=1, balance=1)
    # The examples' classes belong to the same app: a model of a page may stand for one that is there.
    return {
        "__name__": "shelf.models", "models": models, "book": book, "reader": reader, "Account": Account,
        "Author": Author, "Book": Book, "Copy": Copy, "Reader": Reader, "Reservation": Reservation,
    }  # fmt: skip
