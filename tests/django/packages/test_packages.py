"""Packages of Django sites beside guarded models: a table of packages, and what must hold with each.

Each package has a site of its own, in a process of its own: `python test_packages.py NAME` runs its story.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest


class Package(NamedTuple):
    """A row of the table.

    Attributes:
        story: what must hold with it.
        module: the module that must be importable.
        apps: its entries of INSTALLED_APPS.
        rare: True if it is installed for `./dev test all` only.
    """

    story: Callable[[], None]
    module: str
    apps: tuple[str, ...] = ()
    rare: bool = False


# What must hold with each field: of two writers of it the second is refused, and nobody else writes it.


def field_is_guarded(model: Any, one: Any, two: Any, three: Any) -> None:
    """Check a model with a field `it` of a package, and `name`; `one`, `two` and `three` are values of the field."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from interlock.django.guarded import StaleObject, changes, state_tag, written

    made = model.objects.create(it=one, name="naem")
    mine, theirs = model.objects.get(pk=made.pk), model.objects.get(pk=made.pk)
    assert changes(mine) == {}
    tag = state_tag(mine)
    theirs.it = two
    assert set(changes(theirs)) >= {"it"}
    theirs.save()
    assert changes(theirs) == {}
    assert state_tag(model.objects.get(pk=made.pk)) == state_tag(theirs) != tag

    mine.name = "name"  # another field: both are kept
    mine.save()
    assert written(mine) == {"name"}
    kept = model.objects.get(pk=made.pk)
    theirs.refresh_from_db()
    assert (kept.it, kept.name) == (theirs.it, "name")

    mine.it = three
    with pytest.raises(StaleObject) as caught:
        mine.save()
    assert "it" in caught.value.fields
    with CaptureQueriesContext(connection) as captured:
        mine.refresh_from_db()
    assert len(captured) == 1
    assert changes(mine) == {}
    mine.it = three
    mine.save()
    assert model.objects.get(pk=made.pk).it == mine.it
    for number, value in enumerate((one, two, one)):  # the same instance again and again
        made.refresh_from_db()
        made.it, made.name = value, str(number)
        made.save()
        assert changes(made) == {}


def guarded(name: str, **fields: Any) -> Any:
    """Make a guarded model with a field `name`, and its table."""
    from django.db import connection, models

    from interlock.django.guarded import Guarded

    meta = type("Meta", (), {"app_label": "shop"})
    more = {"name": models.CharField(max_length=50), "__module__": "shop.models", "Meta": meta}
    bases = fields.pop("bases", (models.Model,))
    made: Any = type(bases[0])(name, (Guarded, *bases), {**more, **fields})
    with connection.schema_editor() as editor:
        editor.create_model(made)
    return made


def countries() -> None:
    from django_countries.fields import CountryField

    field_is_guarded(guarded("Person", it=CountryField()), "DE", "FR", "US")


def picklefield() -> None:
    from picklefield.fields import PickledObjectField

    field_is_guarded(guarded("Job", it=PickledObjectField()), {"a": [1]}, {"a": [1, 2]}, "text")
    made = guarded("Task", it=PickledObjectField(default=list))
    task = made.objects.get(pk=made.objects.create(it=[1]).pk)
    task.it.append(2)  # changed in place
    task.save()
    assert made.objects.get().it == [1, 2]


def phonenumber() -> None:
    from phonenumber_field.modelfields import PhoneNumberField

    field_is_guarded(guarded("Caller", it=PhoneNumberField()), "+41524204242", "+41524204243", "+41524204244")


def jsonform() -> None:
    from django_jsonform.models.fields import JSONField

    schema = {"type": "array", "items": {"type": "string"}}
    field_is_guarded(guarded("Form", it=JSONField(schema=schema, pre_save_hook=sorted)), ["a"], ["b", "a"], ["c"])


def money() -> None:
    from django.db.models import F
    from django.forms import modelform_factory
    from djmoney.models.fields import MoneyField
    from djmoney.money import Money

    from interlock.django.guarded import StaleObject, changes
    from interlock.django.guarded.forms import GuardedModelForm

    model = guarded("Item", it=MoneyField(max_digits=10, decimal_places=2, default_currency="USD"))
    field_is_guarded(model, Money(5, "USD"), Money(6, "USD"), Money(7, "EUR"))

    # The amount and its currency are one value.
    made = model.objects.create(it=Money(5, "JPY"))
    mine, theirs = model.objects.get(pk=made.pk), model.objects.get(pk=made.pk)
    theirs.it = Money(5, "USD")
    theirs.save()
    mine.it = Money(700, "JPY")
    with pytest.raises(StaleObject) as caught:
        mine.save()
    assert set(caught.value.fields) == {"it_currency"}
    assert model.objects.get(pk=made.pk).it == Money(5, "USD")

    mine.refresh_from_db()
    mine.it = F("it") + Money(1, "USD")
    mine.save()
    assert mine.it == Money(6, "USD")
    assert changes(mine) == {}

    # Also in a form, which has one field for both.
    form = modelform_factory(model, GuardedModelForm, fields=["it", "name"])
    made.refresh_from_db()
    page = {"it_0": "6.00", "it_1": "USD", "name": "a", "interlock_read": form(instance=made).read_token()}
    unchanged = form({**page, "name": "b"}, instance=model.objects.get(pk=made.pk))
    assert unchanged.is_valid(), unchanged.errors
    assert unchanged.changed_data == ["name"]
    theirs.refresh_from_db()
    theirs.it = Money(6, "EUR")
    theirs.save()
    changed = form({**page, "it_0": "8.00"}, instance=model.objects.get(pk=made.pk))
    assert "it" in changed.errors
    assert model.objects.get(pk=made.pk).it == Money(6, "EUR")


def safedelete() -> None:
    from django.db import models
    from safedelete.models import SafeDeleteModel

    from interlock.django.guarded import StaleObject

    model = guarded("Folder", bases=(SafeDeleteModel,), status=models.CharField(max_length=9, default="use"))
    made = model.objects.create(name="naem")
    made.delete()
    other = model.all_objects.get(pk=made.pk)
    other.name = "name"
    other.save(keep_deleted=True)
    made.undelete()
    found = model.objects.get(pk=made.pk)
    assert (found.name, found.status) == ("name", "use")
    made.name = "mine"
    with pytest.raises(StaleObject):
        made.save()


# What must hold with each admin: its form stays, two editors lose nothing, in either order of the bases.


def registered(model: Any, bases: tuple[type, ...], **options: Any) -> Callable[[str], str]:
    """Register a new admin of a model; return a function that makes the address of one of its pages."""
    from django.contrib import admin
    from django.core.checks import Error

    if admin.site.is_registered(model):
        admin.site.unregister(model)
    admin.site.register(model, type("Admin", bases, options))
    made = admin.site._registry[model]
    assert [each for each in made.check() if isinstance(each, Error)] == []
    sys.modules["shop.urls"].urlpatterns = [admin_urls()]
    from django.urls import clear_url_caches

    clear_url_caches()
    return lambda rest: f"/admin/{model._meta.app_label}/{model._meta.model_name}/{rest}"


def admin_urls() -> Any:
    from django.contrib import admin
    from django.urls import path

    return path("admin/", admin.site.urls)


def root() -> Any:
    from django.contrib.auth.models import User
    from django.test import Client

    user = User.objects.filter(username="root").first() or User.objects.create_superuser("root", "r@example.org", "p")
    client = Client()
    client.force_login(user)
    return client


def orders(*others: type) -> Iterator[tuple[type, ...]]:
    from interlock.django.guarded.admin import GuardedAdmin

    yield (GuardedAdmin, *others)
    yield (*others, GuardedAdmin)


def opened(client: Any, address: str) -> dict[str, str]:
    from guarded.browser import sent_by

    page = client.get(address)
    assert page.status_code == 200
    # Of a choice of several, nothing is sent where nothing is chosen.
    sent = sent_by(page.content.decode())
    return {name: value for name, value in sent.items() if name not in ("groups", "user_permissions")}


def two_editors_lose_nothing(model: Any, made: Any, page_of: Callable[[str], str], mine: str = "name") -> None:
    """Check that two editors can change two fields, and that the second of one field sees both values."""
    client, address = root(), page_of(f"{made.pk}/change/")
    first, second = opened(client, address), opened(client, address)
    assert "interlock_read" in first
    assert client.post(address, {**first, "name": "theirs"}).status_code == 302
    assert client.post(address, {**second, "notes": "mine"}).status_code == 302
    found = model.objects.get(pk=made.pk)
    assert (found.name, found.notes) == ("theirs", "mine")
    answer = client.post(address, {**second, "name": "mine"})
    assert answer.status_code == 200
    assert "interlock_keep_name" in answer.content.decode()
    assert model.objects.get(pk=made.pk).name == "theirs"


def auth() -> None:
    from django.contrib.auth.admin import UserAdmin
    from django.contrib.auth.models import AbstractUser, User
    from django.core.management import call_command
    from django.db import models

    from interlock.django.guarded import Guarded

    call_command("migrate", verbosity=0)

    class GuardedUser(Guarded, User):
        class Meta:
            app_label = "shop"
            proxy = True

    assert GuardedUser._meta.ordering == User._meta.ordering
    assert issubclass(GuardedUser, AbstractUser | models.Model)
    for number, bases in enumerate(orders(UserAdmin)):
        page_of, client = registered(GuardedUser, bases), root()
        reader = GuardedUser.objects.create_user(f"reader{number}", password="secret")
        address = page_of(f"{reader.pk}/change/")
        html = client.get(address).content.decode()
        assert reader.password not in html
        assert 'name="password"' not in html
        new = {"username": f"new{number}", "password1": "qwe-12-rty", "password2": "qwe-12-rty"}
        added = client.post(page_of("add/"), {**opened(client, page_of("add/")), **new, "usable_password": "true"})
        assert added.status_code == 302
        assert GuardedUser.objects.get(username=f"new{number}").check_password("qwe-12-rty")
        one, two = opened(client, address), opened(client, address)
        assert client.post(address, {**one, "first_name": "Ann"}).status_code == 302
        assert client.post(address, {**two, "last_name": "Lee"}).status_code == 302
        reader.refresh_from_db()
        assert (reader.first_name, reader.last_name) == ("Ann", "Lee")
        assert reader.check_password("secret")
        assert "interlock_keep_first_name" in client.post(address, {**two, "first_name": "Bea"}).content.decode()


def texts() -> dict[str, Any]:
    from django.db import models

    return {"notes": models.CharField(max_length=50, default="", blank=True)}


def parler() -> None:
    from django.core.management import call_command
    from django.db import connection, models
    from parler.admin import TranslatableAdmin, TranslatableTabularInline
    from parler.models import TranslatableModel, TranslatedFields

    from interlock.django.guarded.admin import GuardedInline

    call_command("migrate", verbosity=0)
    shelf = guarded("Shelf")
    model = guarded(
        "Book",
        bases=(TranslatableModel,),
        translations=TranslatedFields(title=models.CharField(max_length=50)),
        shelf=models.ForeignKey(shelf, models.CASCADE, null=True, blank=True),
        **texts(),
    )
    with connection.schema_editor() as editor:
        editor.create_model(model._parler_meta.root_model)
    client = root()
    for bases in orders(TranslatableAdmin):
        page_of = registered(model, bases)
        made = model.objects.create(name="naem", title="old")
        address = page_of(f"{made.pk}/change/")
        assert client.post(address, {**opened(client, address), "title": "new"}).status_code == 302
        assert model.objects.get(pk=made.pk).title == "new"
        two_editors_lose_nothing(model, made, page_of)
        for inline in ((GuardedInline, TranslatableTabularInline), (TranslatableTabularInline, GuardedInline)):
            rows = type("Rows", inline, {"model": model, "extra": 0})
            of_shelf = registered(shelf, next(iter(orders())), inlines=[rows])
            of = shelf.objects.create(name="s")
            row = model.objects.create(name="naem", title="old", shelf=of)
            page = opened(client, of_shelf(f"{of.pk}/change/"))
            model.objects.filter(pk=row.pk).update(notes="theirs")
            answer = client.post(of_shelf(f"{of.pk}/change/"), {**page, "book_set-0-title": "new"})
            assert answer.status_code == 302
            row = model.objects.get(pk=row.pk)
            assert (row.title, row.notes) == ("new", "theirs")


def mptt() -> None:
    from django.core.management import call_command
    from django.db import models
    from mptt.admin import MPTTModelAdmin
    from mptt.models import MPTTModel, TreeForeignKey

    from interlock.django.guarded import LAST_WINS

    call_command("migrate", verbosity=0)
    model = guarded(
        "Genre",
        bases=(MPTTModel,),
        parent=TreeForeignKey("self", models.CASCADE, null=True, blank=True),
        on_stale=dict.fromkeys(["lft", "rght", "tree_id", "level"], LAST_WINS),
        **texts(),
    )
    client = root()
    for bases in orders(MPTTModelAdmin):
        page_of = registered(model, bases)
        above = model.objects.create(name="naem")
        below = model.objects.create(name="below", parent=above)
        address = page_of(f"{above.pk}/change/")
        answer = client.post(address, {**opened(client, address), "parent": str(below.pk)})
        assert answer.status_code == 200  # refused by mptt's own form
        two_editors_lose_nothing(model, above, page_of)
        other = model.objects.create(name="other")
        address = page_of(f"{below.pk}/change/")
        assert client.post(address, {**opened(client, address), "parent": str(other.pk)}).status_code == 302
        assert list(model.objects.get(pk=other.pk).get_descendants()) == [below]


def treebeard() -> None:
    from django.core.management import call_command
    from treebeard.admin import TreeAdmin
    from treebeard.forms import movenodeform_factory
    from treebeard.mp_tree import MP_Node

    from interlock.django.guarded import LAST_WINS

    call_command("migrate", verbosity=0)
    model = guarded(
        "Category",
        bases=(MP_Node,),
        on_stale=dict.fromkeys(["path", "depth", "numchild"], LAST_WINS),
        **texts(),
    )
    client = root()
    for bases in orders(TreeAdmin):
        page_of = registered(model, bases, form=movenodeform_factory(model))
        made = model.add_root(name="naem")
        child = made.add_child(name="below")
        made.notes = "saved again"
        made.save()
        two_editors_lose_nothing(model, made, page_of)
        other = model.add_root(name="other")
        address = page_of(f"{child.pk}/change/")
        page = {**opened(client, address), "treebeard_ref_node": str(other.pk), "treebeard_position": "first-child"}
        page |= {"_ref_node_id": str(other.pk), "_position": "first-child"}  # the names of older versions
        assert client.post(address, page).status_code == 302
        assert [each.pk for each in model.objects.get(pk=other.pk).get_children()] == [child.pk]


def reversion() -> None:
    from django.core.management import call_command
    from reversion import create_revision, is_registered, register
    from reversion.admin import VersionAdmin
    from reversion.models import Version

    call_command("migrate", verbosity=0)
    model = guarded("Article", **texts())
    for bases in orders(VersionAdmin):
        if not is_registered(model):
            register(model)
        page_of = registered(model, bases)
        with create_revision():
            made = model.objects.create(name="naem")
        two_editors_lose_nothing(model, made, page_of)
        versions = Version.objects.get_for_object(made)
        assert [each.field_dict["name"] for each in versions] == ["theirs", "theirs", "naem"]
        client, old = root(), versions.last()
        address = page_of(f"{made.pk}/history/{old.pk}/")
        assert client.post(address, opened(client, address)).status_code == 302
        assert model.objects.get(pk=made.pk).name == "naem"
        next(iter(versions)).revision.revert()
        assert model.objects.get(pk=made.pk).name == "theirs"


def import_export() -> None:
    from django.core.files.uploadedfile import SimpleUploadedFile
    from django.core.management import call_command
    from guarded.browser import sent_by
    from import_export.admin import ImportExportModelAdmin

    call_command("migrate", verbosity=0)
    model = guarded("Product", **texts())
    client = root()
    for bases in orders(ImportExportModelAdmin):
        page_of = registered(model, bases)
        made = model.objects.create(name="naem")
        two_editors_lose_nothing(model, made, page_of)
        file = SimpleUploadedFile("rows.csv", f"id,name,notes\n{made.pk},imported,n\n".encode())
        shown = client.post(page_of("import/"), {"format": "0", "import_file": file, "resource": ""})
        assert shown.status_code == 200
        confirmed = sent_by(shown.content.decode())
        assert client.post(page_of("process_import/"), confirmed).status_code == 302
        assert model.objects.get(pk=made.pk).name == "imported"


PACKAGES = {
    "auth": Package(auth, "django"),
    "countries": Package(countries, "django_countries"),
    "import_export": Package(import_export, "import_export", ("import_export",), rare=True),
    "jsonform": Package(jsonform, "django_jsonform", ("django_jsonform",)),
    "money": Package(money, "djmoney", ("djmoney",)),
    "mptt": Package(mptt, "mptt", ("mptt",)),
    "parler": Package(parler, "parler", ("parler",)),
    "phonenumber": Package(phonenumber, "phonenumber_field"),
    "picklefield": Package(picklefield, "picklefield"),
    "reversion": Package(reversion, "reversion", ("reversion",)),
    "safedelete": Package(safedelete, "safedelete"),
    "treebeard": Package(treebeard, "treebeard", ("treebeard",)),
}


@contextmanager
def site_of(package: Package) -> Iterator[None]:
    """Make a site with a package and an app `shop`, on SQLite."""
    import django
    from django.conf import settings

    with TemporaryDirectory() as folder:
        os.mkdir(folder + "/shop")
        for name in ("__init__", "models", "urls"):
            Path(folder, "shop", name + ".py").write_text("urlpatterns = []\n")
        sys.path[:0] = [folder, str(Path(__file__).parents[1])]
        contrib = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")]
        context = ["django.template.context_processors.request", "django.contrib.auth.context_processors.auth"]
        context.append("django.contrib.messages.context_processors.messages")
        settings.configure(
            SECRET_KEY="only for tests",
            USE_TZ=True,
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            ALLOWED_HOSTS=["*"],
            INSTALLED_APPS=[*contrib, *package.apps, "interlock.django", "shop"],
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder + "/db"}},
            ROOT_URLCONF="shop.urls",
            STATIC_URL="/static/",
            MEDIA_ROOT=folder,
            PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
            LANGUAGE_CODE="en",
            LANGUAGES=[("en", "English"), ("de", "Deutsch")],
            PARLER_LANGUAGES={1: ({"code": "en"}, {"code": "de"}), "default": {"fallbacks": ["en"]}},
            SITE_ID=1,
            MIDDLEWARE=[
                "django.contrib.sessions.middleware.SessionMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware",
            ],
            TEMPLATES=[
                {
                    "BACKEND": "django.template.backends.django.DjangoTemplates",
                    "APP_DIRS": True,
                    "OPTIONS": {"context_processors": context},
                }
            ],
        )
        django.setup()
        import shop.urls  # noqa: F401

        yield


def rows() -> Iterator[Any]:
    """Yield the names of the packages that are installed; those of CI must be."""
    for name, package in PACKAGES.items():
        if not package.rare or find_spec(package.module) is not None:
            yield pytest.param(name, marks=[pytest.mark.rare] if package.rare else [])


@pytest.mark.parametrize("name", list(rows()))
def test_guarded_models_work_beside(name: str) -> None:
    done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"{name} works\n"


if __name__ == "__main__":
    with site_of(PACKAGES[sys.argv[1]]):
        PACKAGES[sys.argv[1]].story()
    print(sys.argv[1], "works")
