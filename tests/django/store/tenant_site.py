"""A site of django-tenants with two tenants; `test_tenants` runs it on a private server."""

import os
import sys
import threading
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import django
from django.conf import settings

FOLDER = mkdtemp()
SITE = {
    "__init__": "",
    "models": """
from django.db import models
from django_tenants.models import DomainMixin, TenantMixin


class Client(TenantMixin):
    pass


class Domain(DomainMixin):
    pass


class Book(models.Model):  # of all tenants together
    name = models.CharField(max_length=50)
""",
}
OWN = {
    "__init__": "",
    "models": """
from django.db import models
from interlock.django.guarded import Guarded


class Page(Guarded, models.Model):
    name = models.CharField(max_length=50)
""",
}
for app, files in (("site_of_all", SITE), ("own", OWN)):
    os.mkdir(f"{FOLDER}/{app}")
    for name, text in files.items():
        with open(f"{FOLDER}/{app}/{name}.py", "w") as file:
            file.write(text)
sys.path.insert(0, FOLDER)

shared = ["django_tenants", "django.contrib.contenttypes", "django.contrib.auth", "interlock.django", "site_of_all"]
where = {key: os.environ[f"TENANTS_{key}"] for key in ("HOST", "PORT", "USER")}
settings.configure(
    SECRET_KEY="only for tests",
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    SHARED_APPS=shared,
    TENANT_APPS=["own"],
    INSTALLED_APPS=[*shared, "own"],
    TENANT_MODEL="site_of_all.Client",
    TENANT_DOMAIN_MODEL="site_of_all.Domain",
    DATABASE_ROUTERS=["django_tenants.routers.TenantSyncRouter"],
    DATABASES={"default": {"ENGINE": "django_tenants.postgresql_backend", "NAME": "postgres", **where}},
    INTERLOCK={},
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, connections  # noqa: E402
from django_tenants.utils import schema_context  # type: ignore[import-untyped]  # noqa: E402
from own.models import Page  # type: ignore[import-not-found]  # noqa: E402
from site_of_all.models import Book  # type: ignore[import-not-found]  # noqa: E402

from interlock import LockTimeout  # noqa: E402
from interlock.django import occupy  # noqa: E402
from interlock.django.guarded.admin import EditedPage  # noqa: E402


def make(schema: str, *models: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    with schema_context(schema), connection.schema_editor() as editor:
        for model in models:
            editor.create_model(model)


def elsewhere(tenant: str, work: Any) -> Any:
    """Run `work` in another thread, for a tenant."""
    found = []

    def run() -> None:
        with schema_context(tenant):
            found.append(work())
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    return found[0]


def is_taken(model: Any) -> bool:
    try:
        with occupy(model, pk=1, timeout=0):
            return False
    except LockTimeout:
        return True


call_command("migrate_schemas", schema_name="public", verbosity=0)
make("public", Book)
Book.objects.create(name="shared")
for tenant in ("anna", "ben"):
    make(tenant, Page)
    with schema_context(tenant):
        Page.objects.create(name=f"of {tenant}")

with schema_context("anna"), occupy(Page, pk=1) as page:
    assert page.name == "of anna"
    assert elsewhere("anna", lambda: is_taken(Page))
    assert not elsewhere("ben", lambda: is_taken(Page))
print("apart")

with schema_context("anna"), occupy(Book, pk=1):
    assert elsewhere("anna", lambda: is_taken(Book))
    assert elsewhere("ben", lambda: is_taken(Book))
print("shared")

anna, ben = SimpleNamespace(pk=1), SimpleNamespace(pk=2)


def editors(tenant: str, user: Any) -> list[Any]:
    with schema_context(tenant):
        return EditedPage(Page, 1, user, 60.0).open()


assert editors("anna", anna) == []
assert editors("ben", ben) == []
assert len(editors("anna", ben)) == 1
print("editors")
