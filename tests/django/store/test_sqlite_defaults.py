"""SQLite: without a configured store, the claims are in files beside the database, or in memory if it is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django import VERSION
from django.db import connection, connections, transaction
from django.test import override_settings
from guarded.helpers import in_threads
from store.shelf.models import Item
from store.test_occupy import add_one, elsewhere

import interlock
from interlock.django import locks, occupy
from interlock.django.checks import places_are_said, settings_make_sense, transactions_begin_with_the_write_lock
from interlock.django.configured import forget_connections
from interlock.django.testing import override_locks

ENGINE = "django.db.backends.sqlite3"


if connection.vendor == "sqlite":  # elsewhere the claims are in the database

    @pytest.mark.parametrize("wal", [False, True])
    def test_an_open_transaction_keeps_no_lock_from_others(wal: bool) -> None:
        item = Item.objects.create(name="Emma")
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA journal_mode = {'wal' if wal else 'delete'}")
        with transaction.atomic():
            Item.objects.get(pk=item.pk)
            assert elsewhere(lambda: locks.lock("other").acquire(timeout=3).release()).result(60)
            with occupy(item, timeout=3) as mine:
                add_one(mine)
                assert elsewhere(lambda: locks.lock("other").acquire(timeout=3).release()).result(60)
            mine.save()  # with WAL: the read is not older than the last write
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = delete")
        assert Item.objects.get().count == 1
        assert locks.claims() == []

    def test_threads_that_read_first_lose_no_update() -> None:
        item = Item.objects.create(name="Emma")

        def add() -> None:
            for _ in range(5):
                Item.objects.get(pk=item.pk)
                with transaction.atomic(), occupy(Item, pk=item.pk, timeout=60) as mine:
                    add_one(mine)

        assert in_threads(*[add] * 4) == [None] * 4
        assert Item.objects.get().count == 20


@pytest.fixture
def database(databases: None, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A SQLite database called "apart", with the test's settings."""
    described: dict[str, Any] = {**connections.settings["default"], "ENGINE": ENGINE, "NAME": tmp_path / "db.sqlite3"}
    connections.settings["apart"] = described
    forget_connections(setting="INTERLOCK")  # a test before may have opened them where other routers lead
    yield described
    forget_connections(setting="INTERLOCK")
    del connections.settings["apart"]


class ToApart:
    """A router that writes claims to the database "apart"."""

    def db_for_write(self, model: Any, **_: object) -> str | None:
        return "apart" if model._meta.label == "interlock.Claim" else None


@pytest.fixture
def apart(database: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Without the setting INTERLOCK, the claims belong to the database "apart"."""
    with override_settings(DATABASE_ROUTERS=[ToApart()]):
        yield database


def test_all_names_of_a_file_are_one_place(apart: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a b%").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a b%")
    folder = tmp_path / "a b%" / "db.sqlite3-locks"
    for name in (tmp_path / "a b%" / "db.sqlite3", str(tmp_path / "link" / "db.sqlite3"),
                 os.path.relpath(tmp_path / "link" / "db.sqlite3"),
                 f"file:{tmp_path}/a%20b%25/db.sqlite3?mode=rwc"):  # fmt: skip
        apart["NAME"] = name
        with locks.lock("a"):
            with interlock.connect(f"file://{quote(str(folder))}") as there:
                assert [view.name for view in there.claims()] == ["a"]


@pytest.mark.parametrize("name", [":memory:", "file:memorydb_default?mode=memory&cache=shared", "file::memory:"])
@pytest.mark.parametrize("said", [{}, {"default": {"ALIAS": "apart"}}])
def test_the_claims_of_a_database_in_memory_are_in_memory(apart: dict[str, Any], name: str, said: Any) -> None:
    apart["NAME"] = name
    with override_settings(INTERLOCK=said), locks.lock("a"):
        assert elsewhere(lambda: locks.lock("a").acquire(timeout=0)).result(60) is None
        with interlock.connect("memory://interlock-django/apart") as there:
            assert [view.name for view in there.claims()] == ["a"]
        assert settings_make_sense(None) == []


def test_locks_follow_the_database_into_a_test_run_and_out_of_it(apart: dict[str, Any], tmp_path: Path) -> None:
    kept = locks.lock("kept")  # as a module of a site keeps it
    there = interlock.connect("memory://interlock-django/apart")
    before = locks["default"]
    with kept:
        assert there.claims() == []
    with override_locks():
        pass
    assert locks["default"] is before
    apart["NAME"] = "file:memorydb_apart?mode=memory&cache=shared"
    assert locks.claims() == []
    with kept:
        assert [view.name for view in there.claims()] == ["kept"]
    apart["NAME"] = tmp_path / "db.sqlite3"
    connections["default"].close()
    connections["default"].ensure_connection()  # Django reconnects; `Locks` that are kept use the new connection
    with kept:
        assert there.claims() == []
        assert [view.name for view in locks.claims()] == ["kept"]
    there.close()


@pytest.mark.parametrize(("of_folder", "of_file", "mode"), [
    (0o755, 0o644, 0o700), (0o775, 0o644, 0o700), (0o775, 0o664, 0o2770), (0o777, 0o666, 0o2777),
    (0o1777, None, 0o700), (0o2775, None, 0o2770),
])  # fmt: skip
def test_who_may_write_to_the_database_may_use_its_locks(
    apart: dict[str, Any], tmp_path: Path, of_folder: int, of_file: int | None, mode: int
) -> None:
    tmp_path.chmod(of_folder)
    if of_file is not None:
        (tmp_path / "db.sqlite3").touch()
        (tmp_path / "db.sqlite3").chmod(of_file)
    with locks.lock("a"):
        assert stat.S_IMODE((tmp_path / "db.sqlite3-locks").stat().st_mode) == mode


def test_the_checks_say_where_claims_are(apart: dict[str, Any], tmp_path: Path) -> None:
    (said,) = places_are_said(None)
    assert said.id == "interlock.I001"
    assert f"file://{tmp_path}/db.sqlite3-locks" in said.msg
    with override_settings(INTERLOCK={"default": "nonsense"}):
        assert places_are_said(None) == []


def test_the_checks_warn_of_requests_that_read_before_they_wait(apart: dict[str, Any]) -> None:
    def found() -> list[str | None]:
        return [each.id for each in transactions_begin_with_the_write_lock(None)]

    assert found() == []
    apart["ATOMIC_REQUESTS"] = True
    # Before 5.1 Django has no option that the check could advise.
    assert found() == (["interlock.W005"] if VERSION >= (5, 1) else [])
    apart["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
    assert found() == []
