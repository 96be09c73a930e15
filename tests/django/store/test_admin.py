"""The list of claims in the admin, and eviction."""

import re
from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connections
from django.test import Client, override_settings
from django.urls import path
from django.utils.translation import override
from store.table_changes import end_leases

from interlock.django import locks
from interlock.django.models import Claim

LIST = "/admin/interlock/claim/"


urlpatterns = [path("admin/", admin.site.urls)]


def client_of(*permissions: str) -> Client:
    """Return the test client of a user with these permissions."""
    user = User.objects.create_user(f"ann {len(permissions)}", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture(autouse=True)
def people(clean: None) -> object:
    """Use the URLs of the admin; delete the users of the test afterwards."""
    with override_settings(ROOT_URLCONF=__name__):
        yield
    LogEntry.objects.all().delete()
    User.objects.all().delete()


def test_the_list_shows_who_holds_what() -> None:
    for left_by_another_test in locks.claims():  # pages that were edited on SQLite
        locks.evict(left_by_another_test.name)
    with locks.lock("book:1", label="revision") as grant, locks.semaphore("pool", 3):
        shown = client_of("view_claim").get(LIST).content.decode()
    for text in ("book:1", "revision", "Using", "exclusive", "semaphore 1/3", str(grant.fence), "s ago"):
        assert text in shown, text
    left = [float(each) for each in re.findall(r">([\d.]+) s<", shown)]
    assert len(left) == 2
    assert all(0 < each <= 31 for each in left)


if connections["default"].vendor != "sqlite":

    def test_a_claim_whose_lease_has_ended_is_not_shown() -> None:
        grant = locks.lock("book:1").acquire()
        end_leases()
        assert "book:1" not in client_of("view_claim").get(LIST).content.decode()
        grant.release()


@pytest.mark.parametrize(
    ("query", "seen"),
    [
        ("state=using", True),
        ("state=pending", False),
        ("q=no", False),
        ("q=HOLDER", True),
        ("q=the-n", True),
    ],
)
def test_filters(query: str, seen: bool) -> None:
    with locks.lock("the-name", label="holder"):
        shown = client_of("view_claim").get(f"{LIST}?{query}").content.decode()
    assert (">the-name<" in shown) == seen


def test_the_list_shows_every_entry_of_the_setting(tmp_path: Path) -> None:
    places = {"reports": {"LOCATION": f"file://{tmp_path}", "NAMESPACE": "site"}}
    with override_settings(INTERLOCK=places), locks["reports"].lock("nightly"):
        client = client_of("view_claim")
        assert ">nightly<" not in client.get(LIST).content.decode()
        shown = client.get(f"{LIST}?locks=reports").content.decode()
        assert ">nightly<" in shown
        assert ">site<" in shown
        assert client.get(f"{LIST}?locks=nowhere").status_code == 200


def test_a_store_that_is_away_is_said() -> None:
    with override_settings(INTERLOCK={"default": {"LOCATION": "redis://127.0.0.1:1"}}):
        shown = client_of("view_claim").get(LIST).content.decode()
    assert "The store failed" in shown


def test_it_refreshes_itself_on_request() -> None:
    client = client_of("view_claim")
    plain = client.get(LIST).content.decode()
    assert 'http-equiv="refresh"' not in plain
    assert "?refresh=5" in plain
    shown = client.get(f"{LIST}?state=using&refresh=5").content.decode()
    assert '<meta http-equiv="refresh" content="5">' in shown
    assert "Stop refreshing" in shown
    assert 'href="?refresh=30&amp;state=using"' in shown
    for wrong in ("often", "9" * 5000):
        assert 'http-equiv="refresh"' not in client.get(f"{LIST}?refresh={wrong}").content.decode()


def test_who_reads_the_rows_of_all_models_finds_none_of_claims(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    for everything in (False, True):
        call_command("dumpdata", use_base_manager=everything, output=str(file), verbosity=0)
        call_command("loaddata", str(file), verbosity=0)
    for manager in (Claim._default_manager, Claim._base_manager):
        assert (list(manager.all()), manager.count(), manager.filter(pk="a").exists()) == ([], 0, False)
        assert manager.all().delete() == (0, {})


def test_to_evict_needs_its_permission_and_is_logged() -> None:
    grant = locks.lock("book:1").acquire()
    order = {"action": "evict", "_selected_action": [grant.id]}
    client_of("view_claim").post(LIST, {**order, "evict_confirmed": "yes"})
    assert grant.renew()
    client = client_of("view_claim", "evict_claim")
    page = client.post(LIST, order).content.decode()
    assert "Are you sure?" in page
    assert "book:1" in page
    assert grant.renew()
    asked = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
    answer = client.post(LIST, asked, follow=True)
    assert "1 claim was evicted" in answer.content.decode()
    assert not grant.renew()
    entry = LogEntry.objects.get()
    assert entry.user.username == "ann 2"
    assert "book:1" in entry.object_repr
    assert grant.id in entry.change_message
    assert client.post(LIST, asked, follow=True).status_code == 200
    assert LogEntry.objects.count() == 1


def test_the_list_is_read_only_and_needs_a_permission() -> None:
    everything = [each.codename for each in Permission.objects.filter(content_type__app_label="interlock")]
    assert sorted(everything) == ["evict_claim", "view_claim"]
    assert client_of().get(LIST).status_code == 403
    client = client_of(*everything)
    assert LIST in client.get("/admin/").content.decode()
    with locks.lock("a") as grant:
        for address in (f"{LIST}add/", f"{LIST}{grant.id}/change/", f"{LIST}{grant.id}/delete/"):
            assert client.post(address, {"name": "b", "post": "yes"}).status_code == 404
        assert grant.held


def test_the_list_is_in_the_language_of_the_site() -> None:
    with locks.lock("book:1"), override("zh-hans"):
        shown = client_of("view_claim").get(LIST).content.decode()
    for text in ("占用", "持有者", "剩余租期", "使用中"):
        assert text in shown, text


def test_the_record_of_a_run_is_shown_as_a_record() -> None:
    locks.once("import:2026-11", keep=3600).run(lambda: None)
    shown = client_of("view_claim", "evict_claim").get(LIST, {"q": "import:2026-11"}).content.decode()
    assert '<td class="field-state">Record</td>' in shown
    assert '<td class="field-holder"></td>' in shown
    assert '<td class="field-since"></td>' in shown
    assert "action-select" not in shown  # there is no claim to evict
    locks.forget("import:2026-11")
