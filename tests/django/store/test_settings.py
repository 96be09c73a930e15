"""The setting INTERLOCK: its values, and the messages of Django's checks about it."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import checks
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

import interlock.django
from interlock import InvalidArgument
from interlock.django import alocks, locks
from interlock.django.checks import problems_of, settings_make_sense, tables_are_there
from interlock.django.conf import database_of_claims
from interlock.django.configured import make_locks
from interlock.django.models import Claim
from interlock.django.testing import assert_free, assert_held, override_locks


def test_without_a_setting_claims_are_in_the_default_database() -> None:
    with override_settings(INTERLOCK={}), locks.lock("a"):
        if connections["default"].vendor == "sqlite":
            assert Path(f"{settings.DATABASES['default']['NAME']}-locks").is_dir()
            return
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM interlock_line")
            assert cursor.fetchone() == (1,)


def test_entries_are_chosen_by_their_alias(tmp_path: Path) -> None:
    places = {
        "default": {"ALIAS": "other", "NAMESPACE": "site", "TTL": 7, "OPTIONS": {"MAX_CONNECTIONS": 2}},
        "reports": {"LOCATION": f"file://{tmp_path}"},
        "third": {},
    }
    with override_settings(INTERLOCK=places):
        with locks.lock("a") as grant, locks["reports"].lock("b"):
            assert [(view.name, view.id) for view in locks.claims()] == [("a", grant.id)]
            assert 6 < grant.expires_in <= 7
            assert [view.name for view in locks["reports"].claims()] == ["b"]
            assert locks["third"].claims() == []
        assert list(locks) == ["default", "reports", "third"]


def test_an_entry_can_name_the_instance_and_take_over(tmp_path: Path) -> None:
    place = {"LOCATION": f"sqlite:///{tmp_path}/locks.db", "INSTANCE": "worker-7", "TAKEOVER": True}
    with override_settings(INTERLOCK={"default": place}):
        with locks.lock("a"):
            assert [view.instance for view in locks.claims()] == ["worker-7"]
    with override_settings(INTERLOCK={"default": {**place, "INSTANCE": None}}):
        with pytest.raises(InvalidArgument, match="takeover=True needs instance="):
            locks.lock("a")


def test_options_of_a_location_are_arguments_of_connect() -> None:
    location = {"LOCATION": "s3://bucket?region=x", "OPTIONS": {"config": {"no_such_setting": "5ecret"}}}
    with override_settings(INTERLOCK={"default": location}):
        with pytest.raises(InvalidArgument, match="'no_such_setting' is not valid") as caught:
            locks.lock("a").acquire()
    assert "5ecret" not in str(caught.value)


def test_the_connection_is_made_once_and_for_both_colours() -> None:
    assert locks["default"] is locks["default"]
    assert alocks["default"].store is not locks["default"].store


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
        ({"default": {"OPTIONS": {"MAX_CONNECTIONS": "x"}}}, ["interlock.E002"]),
        ({"default": {"OPTIONS": {"MAX_CONNECTIONS": 0}}}, ["interlock.E002"]),
        ({"default": {"OPTIONS": {"MOST": 1}}}, ["interlock.E002"]),
        ({"default": {"LOCATION": "file:///tmp/x", "OPTIONS": {"MAX_CONNECTIONS": 2}}}, ["interlock.E001"]),
        ({"default": {"LOCATION": "rediss+nowhere://host"}}, ["interlock.E002"]),
        ({"default": {"LOCATION": "localhost"}}, ["interlock.E002"]),
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
        {"default": {"LOCATION": 5}},
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
    with override_settings(INTERLOCK={"default": {"OPTIONS": {"MAX_CONNECTIONS": most}}}):
        with pytest.raises(InvalidArgument, match="MAX_CONNECTIONS must be a whole number"):
            locks.lock("a")


SERVER = connections["default"].vendor != "sqlite"
PROBLEMS: list[tuple[dict[str, Any], list[str]]] = [
    ({"TEST": {"MIRROR": "default"}}, ["interlock.E007"] * SERVER),
    ({"OPTIONS": {"isolation_level": "repeatable read"}}, ["interlock.W002"] * SERVER),
    ({"OPTIONS": {"nonsense": 1}}, ["interlock.E006"] * SERVER),
]


@pytest.mark.parametrize(("database", "expected"), PROBLEMS)
def test_the_checks_explain_a_database(
    database: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES, "default", {**settings.DATABASES["default"], **database})
    monkeypatch.setitem(connections.settings, "default", {**connections.settings["default"], **database})
    assert ids(problems_of("default")) == expected


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
        assert ids(problems_of("other")) == ["interlock.E008"] * SERVER


@override_settings(INTERLOCK={"by alias": {"ALIAS": "other"}})
def test_claims_go_where_the_routers_write_them() -> None:
    with override_settings(DATABASE_ROUTERS=[ToOther()]):
        assert database_of_claims() == "other"
        with locks.lock("a"), make_locks("by alias") as there:
            assert [view.name for view in there.claims()] == ["a"]


if SERVER:

    def test_the_app_must_be_installed() -> None:
        rest = [each for each in settings.INSTALLED_APPS if each != "interlock.django"]
        with override_settings(INSTALLED_APPS=rest):
            assert "interlock.E005" in ids(problems_of("default"))

    def test_migrations_make_and_drop_the_table_as_routers_allow() -> None:
        there = connections["other"].introspection.table_names
        call_command("migrate", "interlock", "zero", database="other", verbosity=0)
        try:
            assert not [each for each in there() if each.startswith("interlock")]
            with override_settings(DATABASE_ROUTERS=[Nowhere()]):
                call_command("migrate", "interlock", database="other", verbosity=0)
                assert not [each for each in there() if each.startswith("interlock")]
                call_command("migrate", "interlock", "zero", database="other", verbosity=0)
        finally:
            call_command("migrate", "interlock", database="other", verbosity=0)
        assert "interlock_line" in there()

    def test_a_missing_table_warns_and_is_made_by_the_first_lock() -> None:
        call_command("migrate", "interlock", "zero", database="other", verbosity=0)
        try:
            with override_settings(INTERLOCK={"default": {"ALIAS": "other"}}):
                assert ids(tables_are_there(None, databases=["default", "other"])) == ["interlock.W003"]
                with locks.lock("a", timeout=10):
                    assert ids(tables_are_there(None, databases=["default", "other"])) == []
        finally:
            call_command("migrate", "interlock", database="other", verbosity=0)

    def test_a_site_without_the_driver_of_the_locks_is_only_warned(monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(alias: str) -> Any:
            raise ImportError("no driver")

        monkeypatch.setattr(interlock.django.checks, "libpq_of", missing)
        monkeypatch.setattr(interlock.django.checks, "pymysql_of", missing)
        (message,) = problems_of("default")
        assert (message.id, message.level) == ("interlock.W006", checks.WARNING)
        assert "orm:" in str(message.hint)


def test_there_is_no_migration_to_be_made() -> None:
    call_command("makemigrations", "interlock", "--check", "--dry-run", verbosity=0)


def test_locks_in_memory_for_tests() -> None:
    with override_locks(), locks.lock("a"):
        assert_held("a")
        with pytest.raises(AssertionError, match="'a' is using"):
            assert_free("a")
    assert_free("a")
    with pytest.raises(AssertionError, match="is not held"):
        assert_held("a")


def test_no_grant_of_a_replaced_setting_is_held_by_two(tmp_path: Path) -> None:
    async def acquired() -> Any:
        return await alocks.lock("a").acquire()

    url = f"file://{tmp_path}/locks"
    with override_settings(INTERLOCK={"default": {"LOCATION": url}}):
        grant = asyncio.run(acquired())
        with interlock.connect(url) as other:
            assert other.lock("a").acquire(timeout=0) is None
    with interlock.connect(url) as other:
        assert not (other.lock("a").acquire(timeout=0) and grant.held)
