"""INTERLOCK in the settings: what it says, and what the checks say about it."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from django.conf import settings
from django.core import checks
from django.db import connections
from django.test import override_settings

import interlock.django
from interlock import InvalidArgument, StoreError
from interlock.django import alocks, locks
from interlock.django.checks import problems_of, settings_make_sense, tables_are_there
from interlock.django.conf import ORM_STORE
from interlock.django.models import Claim
from interlock.django.store import OrmStore
from interlock.django.testing import LocksMixin, assert_free, assert_held, override_locks
from interlock.stores.driven import original
from interlock.stores.files import FileStore


def test_without_a_setting_the_claims_are_in_the_default_database_or_beside_it() -> None:
    with override_settings(INTERLOCK={}), locks.lock("a"):
        if connections["default"].vendor == "sqlite":
            assert isinstance(locks.store, FileStore)
            assert Path(f"{settings.DATABASES['default']['NAME']}-locks").is_dir()
            return
        assert Claim.objects.get(state="using").name == "a"
        assert isinstance(original(locks.store), OrmStore)
        assert locks.store.store.alias == "default"


def test_entries_are_chosen_by_their_alias(tmp_path: Path) -> None:
    places = {
        "default": {"BACKEND": "interlock.django.store.OrmStore", "ALIAS": "other", "NAMESPACE": "site", "TTL": 7},
        "reports": {"LOCATION": f"file://{tmp_path}"},
    }
    with override_settings(INTERLOCK=places):
        with locks.lock("a") as grant, locks["reports"].lock("a"):
            claim = Claim.objects.using("other").get(state="using")
            assert (claim.namespace, claim.name) == ("site", "a")
            assert 6 < grant.expires_in <= 7
        assert isinstance(locks["reports"].store, FileStore)
        assert list(locks) == ["default", "reports"]
        assert "reports" in repr(locks)


def test_the_connection_is_made_once_and_for_both_colours() -> None:
    assert locks["default"] is locks["default"]
    assert alocks["default"].store is not locks["default"].store


def test_an_alias_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="has no 'nowhere'"):
        locks["nowhere"]


def test_the_package_can_be_imported_before_the_apps_are_loaded() -> None:
    program = "import interlock.django, sys; assert 'django.db' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert interlock.django.occupy.__name__ == "occupy"
    with pytest.raises(AttributeError):
        interlock.django.nothing  # noqa: B018


def ids(found: list[checks.CheckMessage]) -> list[str | None]:
    """Return the ids of messages."""
    return [each.id for each in found]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ({}, []),
        (["redis://host"], ["interlock.E001"]),
        ({"default": "redis://host"}, ["interlock.E001"]),
        ({"default": {"URL": "redis://host"}}, ["interlock.E001"]),
        ({"default": {"TTL": 0}}, ["interlock.E001"]),
        ({"default": {"LOCATION": "file:///tmp/x", "BACKEND": "x.Y"}}, ["interlock.E001"]),
        ({"default": {"LOCATION": "file:///tmp/x", "ALIAS": "default"}}, ["interlock.E001"]),
        ({"default": {"BACKEND": "no.such.Store"}}, ["interlock.E002"]),
        ({"default": {"BACKEND": "pathlib.Path"}}, ["interlock.E002"]),
        ({"default": {"BACKEND": "pathlib.sep"}}, ["interlock.E002"]),
        ({"default": {"BACKEND": ORM_STORE, "OPTIONS": {"MAX_CONNECTIONS": "x"}}}, ["interlock.E002"]),
        ({"default": {"BACKEND": ORM_STORE, "OPTIONS": {"MAX_CONNECTIONS": 0}}}, ["interlock.E002"]),
        ({"default": {"BACKEND": ORM_STORE, "OPTIONS": {"MOST": 1}}}, ["interlock.E002"]),
        ({"default": {"LOCATION": "rediss+nowhere://host"}}, ["interlock.E002"]),
        ({"default": {"LOCATION": "localhost"}}, ["interlock.E003"]),
        ({"default": {"LOCATION": "memory://"}}, ["interlock.W001"]),
        ({"default": {"ALIAS": "nowhere"}}, ["interlock.E004"]),
        ({"default": {}, "second": {"ALIAS": "other"}}, []),
    ],
)
def test_the_checks_explain_a_setting(places: Any, expected: list[str]) -> None:
    with override_settings(INTERLOCK=places):
        assert ids(settings_make_sense(None)) == expected


@pytest.mark.parametrize(
    "places",
    [
        "redis://x",
        5,
        {5: {}},
        {"default": {5: 1, "FOO": 2, None: 3}},
        {"default": {"OPTIONS": 5}},
        {"default": {"OPTIONS": [1]}},
        {"default": {"OPTIONS": {5: 1}}},
        {"default": {"BACKEND": 5}},
        {"default": {"ALIAS": ["default"]}},
        {"default": {"ALIAS": {}}},
        {"default": {"OPTIONS": {"alias": ["default"]}}},
        {"default": {"NAMESPACE": 5}},
        {"default": {"TTL": "x"}},
    ],
)
def test_a_setting_of_any_kind_is_an_error_and_no_traceback(places: Any) -> None:
    with override_settings(INTERLOCK=places):
        databases = list(settings.DATABASES)
        assert (
            ids(checks.run_checks(databases=databases, include_deployment_checks=True)).count("interlock.E001") == 1
        )
        with pytest.raises(InvalidArgument):
            locks.lock("a")


@pytest.mark.parametrize("most", [0, -1, "x", 1.5, True, None])
def test_a_number_of_connections_that_makes_no_sense_is_refused(most: Any) -> None:
    with pytest.raises(InvalidArgument, match="MAX_CONNECTIONS is a whole number"):
        OrmStore("default", max_connections=most)


def test_the_site_of_the_tests_has_no_problems() -> None:
    expected = ["interlock.W004"] if connections["default"].vendor == "sqlite" else []
    found = checks.run_checks(databases=list(settings.DATABASES))
    assert ids([each for each in found if not each.is_silenced()]) == expected


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "interlock.E006"),
        ({"TEST": {"MIRROR": "default"}}, "interlock.E007"),
        ({"ENGINE": "django.db.backends.oracle"}, "interlock.E009"),
        ({"OPTIONS": {"isolation_level": "repeatable read"}}, "interlock.W002"),
    ],
)
def test_the_checks_explain_a_database(
    database: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES, "default", {**settings.DATABASES["default"], **database})
    assert ids(problems_of("default")) == [expected]


class Nowhere:
    """A router that keeps the table out of a database."""

    def allow_migrate(self, db: str, app_label: str, **_: object) -> bool | None:
        return False if app_label == "interlock" and db == "other" else None


class ToOther:
    """A router that writes claims to the other database."""

    def db_for_write(self, model: Any, **_: object) -> str | None:
        return "other" if model is Claim else None

    def db_for_read(self, model: Any, **_: object) -> str | None:
        return "default" if model is Claim else None


def test_the_checks_explain_a_router() -> None:
    with override_settings(DATABASE_ROUTERS=[Nowhere()]):
        assert ids(problems_of("other")) == ["interlock.E008"]


class ByModel:
    """The table of claims is elsewhere, by its name."""

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **_: object) -> bool | None:
        return db == "other" if model_name == "claim" else None


@pytest.mark.parametrize(("alias", "statements"), [("default", 0), ("other", 1)])
def test_the_functions_of_postgresql_are_where_a_router_puts_the_table(alias: str, statements: int) -> None:
    editor = MagicMock()
    editor.connection.vendor, editor.connection.alias = "postgresql", alias
    editor.connection.ops.prepare_sql_script = lambda script: [script]
    (operation,) = import_module("interlock.django.migrations.0002_folded").Migration.operations
    with override_settings(DATABASE_ROUTERS=[ByModel()]):
        operation.database_forwards("interlock", editor, None, None)
    assert editor.execute.call_count == statements


def test_claims_go_where_the_routers_write_them() -> None:
    with override_settings(DATABASE_ROUTERS=[ToOther()], INTERLOCK={}):
        assert OrmStore().alias == "other"


def test_the_app_must_be_installed() -> None:
    rest = [each for each in settings.INSTALLED_APPS if each != "interlock.django"]
    with override_settings(INSTALLED_APPS=rest):
        assert "interlock.E005" in ids(problems_of("default"))


def test_a_missing_table_is_a_warning_and_a_clear_error() -> None:
    connection = connections["other"]
    with connection.schema_editor() as editor:
        editor.delete_model(Claim)
    try:
        with override_settings(INTERLOCK={"default": {"ALIAS": "other"}}):
            assert ids(tables_are_there(None, databases=["default", "other"])) == ["interlock.W003"]
            with pytest.raises(StoreError, match=r"manage\.py migrate interlock"):
                locks.lock("a").acquire(timeout=1)
            assert "fail" in [each.status for each in locks["default"].doctor()]
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(Claim)


def test_a_backend_that_can_not_be_imported_is_a_clear_error() -> None:
    with override_settings(INTERLOCK={"default": {"BACKEND": "no.such.Store"}}):
        with pytest.raises(StoreError, match=r"BACKEND 'no\.such\.Store'"):
            locks.lock("a")


def test_the_doctor_is_content() -> None:
    assert {each.status for each in locks.doctor()} == {"ok"}


def test_locks_in_memory_for_tests() -> None:
    with override_locks(), locks.lock("a"):
        assert_held("a")
        with pytest.raises(AssertionError, match="'a' is using"):
            assert_free("a")
        assert not Claim.objects.exists()
    assert_free("a")
    with pytest.raises(AssertionError, match="nobody holds"):
        assert_held("a")


class Base:
    """What a `TestCase` gives to the mixin."""

    def setUp(self) -> None:
        self.cleanups: list[Any] = []

    def addCleanup(self, function: Any) -> None:
        self.cleanups.append(function)


def test_the_mixin_for_test_cases() -> None:
    class Case(LocksMixin, Base):
        pass

    case: Any = Case()
    case.setUp()
    with locks.lock("a"):
        case.assertHeld("a")
    case.assertFree("a")
    assert not isinstance(original(locks.store), OrmStore)
    for each in case.cleanups:
        each()
    assert isinstance(original(locks.store), OrmStore)
