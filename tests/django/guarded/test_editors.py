"""The page tells a second editor who is editing."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.transaction import atomic
from django.test import Client, override_settings
from guarded.browser import sent_by
from guarded.library.admin import BookAdmin
from guarded.library.models import Book

from interlock.django import locks
from interlock.django.guarded.admin import EditedPage
from interlock.testing.waiting import SET_BACK

pytestmark = pytest.mark.usefixtures("in_memory")


def editor(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser(name))
    return client


def address(book: Book) -> str:
    return f"/admin/library/book/{book.pk}/change/"


def opened(client: Client, book: Book) -> list[str]:
    """Open the page; return the other editors that it names."""
    html = client.get(address(book)).content.decode()
    return re.findall(r"Opened by (\w+) [^<]* ago, who may be editing it", html)


def save(client: Client, book: Book, **values: str) -> int:
    page = sent_by(client.get(address(book)).content.decode())
    return client.post(address(book), {**page, **values}).status_code


def test_a_second_editor_is_told_who_is_editing(book: Book) -> None:
    anna, ben = editor("anna"), editor("ben")
    assert opened(anna, book) == []
    assert opened(ben, book) == ["anna"]
    assert opened(anna, book) == ["ben"]


def test_an_editor_has_one_claim_and_sees_no_own_notice(book: Book) -> None:
    anna = editor("anna")
    assert opened(anna, book) == opened(anna, book) == []
    assert [claim.label for claim in locks.claims(f"editing:library.book:{book.pk}")] == ["anna"]


def test_whoever_has_saved_edits_no_more(book: Book) -> None:
    anna, ben = editor("anna"), editor("ben")
    assert save(anna, book, name="new") == 302
    assert opened(ben, book) == []


def test_whoever_is_shown_errors_edits_on(book: Book) -> None:
    anna, ben = editor("anna"), editor("ben")
    assert save(anna, book, name="forbidden") == 200
    assert opened(ben, book) == ["anna"]


def test_an_editor_who_never_saves_expires_with_the_lease(book: Book) -> None:
    user = User.objects.create_superuser("anna")
    shown = EditedPage(Book, book.pk, user, 600.0)
    shown.open()
    (claim,) = locks.claims(shown.name)
    assert 590 < claim.expires_in <= 600 + SET_BACK


def test_objects_are_told_apart(book: Book) -> None:
    other = Book.objects.create(name="other", status="use", author=book.author)
    anna, ben = editor("anna"), editor("ben")
    opened(anna, other)
    assert opened(ben, book) == []


@pytest.mark.parametrize(("name", "value"), [("has_change_permission", lambda *_: False), ("editing_lease", None)])
def test_read_only_pages_and_opted_out_admins_show_no_editor(
    book: Book, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    monkeypatch.setattr(BookAdmin, name, value)
    opened(editor("anna"), book)
    assert locks.claims() == []


def test_an_address_that_names_no_object_leaves_no_claim(book: Book) -> None:
    anna = editor("anna")
    for address in ("/admin/library/book/999999/change/", "/admin/library/book/nonsense/change/"):
        assert anna.get(address).status_code == 302
    assert locks.claims() == []


def test_under_atomic_requests_a_page_does_not_wait_for_itself(book: Book) -> None:
    anna = editor("anna")
    with atomic(), override_settings(INTERLOCK={"default": {}}):
        Book.objects.create(name="other", status="use", author=book.author)  # has the file for itself
        assert opened(anna, book) == []


def test_a_store_that_is_down_does_not_hide_the_page(book: Book) -> None:
    anna = editor("anna")
    with override_settings(INTERLOCK={"default": {"LOCATION": "redis://127.0.0.1:1"}}):
        assert anna.get(address(book)).status_code == 200
        assert save(anna, book, name="new") == 302
    book.refresh_from_db()
    assert book.name == "new"
