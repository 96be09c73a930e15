"""`orm:` - the lines of the contract that it promises, and its own features."""

import sys
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from itertools import count
from typing import Any

import pytest
from django.conf import settings
from django.core import checks
from django.db import connections, transaction
from django.db.models.functions import Now
from django.test import override_settings
from store.shelf.models import Item
from store.test_occupy import elsewhere

from interlock import InvalidArgument, LockLost, StoreError
from interlock.django import locks, occupy
from interlock.django.checks import settings_make_sense
from interlock.django.conf import place as entry_of
from interlock.django.configured import make_locks
from interlock.django.models import Record
from interlock.django.store import OrmStore

ORM = {"default": {"LOCATION": "orm:"}}


@pytest.fixture(autouse=True)
def by_orm(clean: None) -> Any:
    """The locks are records of the ORM, in a database without an open transaction of the test."""
    there = "orm:other" if settings.DATABASE == "sqlite" else "orm:"
    with override_settings(INTERLOCK={"default": {"LOCATION": there}}):
        yield


def records() -> Any:
    """Return the claims' records, without those that only keep a fence."""
    return Record.objects.using("other" if settings.DATABASE == "sqlite" else "default").exclude(state="done")


def test_a_holder_is_a_record_and_a_waiter_too() -> None:
    with locks.lock("book:1", label="revision") as grant:
        (record,) = records()
        assert (record.state, record.name, record.label, record.fence) == (
            "using", "book:1", "revision", grant.fence
        )  # fmt: skip
        assert locks.lock("book:1").acquire(timeout=0) is None
        assert [view.id for view in locks.claims()] == [grant.id]
    assert not records().exists()


def test_a_close_in_a_signal_handler_during_a_request_ends() -> None:
    moments = next(moment for moment in range(1, 1000) if not closed_at(moment))
    assert moments > 10


def closed_at(moment: int) -> bool:
    """Close a client between two calls of its own thread that acquires; False if there are fewer calls."""
    client, calls = make_locks(), count(1)

    def strike(frame: Any, *_: object) -> None:
        if frame.f_code.co_filename.endswith(("records.py", "thread.py")) and next(calls) == moment:
            sys.setprofile(None)
            client.close()

    sys.setprofile(strike)
    with suppress(StoreError):
        client.lock(f"book:{moment}").acquire(timeout=5)
    sys.setprofile(None)
    client.close()
    return next(calls) > moment


def test_fences_increase_after_old_records_and_a_late_clock() -> None:
    first = locks.lock("a").acquire()
    first.release()
    tops = Record.objects.using(records().db).filter(state="done")
    ahead = first.fence + 10**12
    assert tops.update(fence=ahead) == 1
    second = locks.lock("a").acquire()
    assert second.fence == ahead + 1
    second.release()
    assert tops.update(until=Now() - timedelta(days=1), fence=1) == 1
    for _ in range(64):
        with locks.lock("other"):
            pass
    assert not tops.filter(fence=1).exists()
    third = locks.lock("a").acquire()
    assert third.fence > first.fence
    third.release()


def test_records_that_nobody_asks_for_any_more_are_swept() -> None:
    assert locks.lock("forgotten").acquire() is not None
    records().update(until=Now() - timedelta(minutes=2))
    for _ in range(64):
        with locks.lock("other"):
            pass
    assert not records().exists()


def test_the_loser_of_an_ended_lease_commits_nothing() -> None:
    item = Item.objects.create(name="Emma")
    with pytest.raises(LockLost), transaction.atomic():
        with occupy(item, timeout=5):
            item.name = "written by one who has lost"
            item.save()

        def take_over() -> None:
            records().update(until=Now() - timedelta(seconds=1))
            with locks.lock(f"shelf.item:{item.pk}", timeout=5):
                pass

        elsewhere(take_over).result(20)
    assert Item.objects.get().name == "Emma"


def test_a_transaction_that_relies_on_a_record_commits() -> None:
    item = Item.objects.create(name="Emma")
    with transaction.atomic(), occupy(item, timeout=5):
        item.name = "written by the holder"
        item.save()
    assert Item.objects.get().name == "written by the holder"


def test_a_transaction_hides_no_record_and_takes_none_back() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        grant = locks.lock("a").acquire()
        raise ZeroDivisionError
    assert [view.id for view in locks.claims()] == [grant.id]
    assert grant.release()


def test_the_doctor_looks_at_the_table() -> None:
    assert {each.status for each in locks.doctor()} == {"ok"}
    with connections[records().db].schema_editor() as editor:
        editor.delete_model(Record)
    try:
        assert "fail" in {each.status for each in locks.doctor()}
        with pytest.raises(StoreError, match=r"migrate interlock|no such table"):
            locks.lock("a").acquire(timeout=1)
    finally:
        with connections[records().db].schema_editor() as editor:
            editor.create_model(Record)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"LOCATION": "orm:"}, ["interlock.W004"] if settings.DATABASE == "sqlite" else []),
        ({"LOCATION": "orm:other"}, ["interlock.W004"] if settings.DATABASE == "sqlite" else []),
        ({"LOCATION": "orm:nowhere"}, ["interlock.E004"]),
        ({"LOCATION": "orm:", "OPTIONS": {"MAX_CONNECTIONS": 0}}, ["interlock.E002"]),
        ({"BACKEND": "interlock.django.store.OrmStore", "ALIAS": "nowhere"}, ["interlock.E004"]),
    ],
)
def test_the_checks_explain_the_setting(said: dict[str, Any], expected: list[str]) -> None:
    with override_settings(INTERLOCK={"default": said}):
        assert [each.id for each in settings_make_sense(None)] == expected


def test_it_is_the_default_where_no_other_store_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("interlock.django.databases"), "OPENERS", {})
    monkeypatch.setattr(import_module("interlock.django.checks"), "OPENERS", {})
    with override_settings(INTERLOCK={"default": {"ALIAS": records().db}}):
        assert [each.id for each in settings_make_sense(None) if each.level < checks.WARNING] == ["interlock.I002"]
        with locks.lock("a"):
            assert [record.name for record in records()] == ["a"]


def test_a_backend_is_named_as_before_and_an_alias_too() -> None:
    with override_settings(INTERLOCK={"default": {"BACKEND": "interlock.django.store.OrmStore", "ALIAS": "other"}}):
        assert isinstance(locks.store, OrmStore)
        with locks.lock("a"):
            assert [record.name for record in Record.objects.using("other").filter(state="using")] == ["a"]
    with override_settings(INTERLOCK={"default": {"LOCATION": "orm:other", "BACKEND": "x.Y"}}):
        with pytest.raises(InvalidArgument, match="Omit BACKEND"):
            entry_of("default")
