"""The admin shows a second editor both values; he chooses one, and loses no input."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from guarded.browser import sent_by
from guarded.helpers import before_saves, in_threads
from guarded.library.models import Book, Magazine

from interlock.django.guarded import StaleObject, changes
from interlock.django.guarded.admin import GuardedAdmin
from interlock.django.guarded.forms import READ, GuardedModelForm


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("editor"))
    return client


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let another user change a book just before the next save of a book that is there."""
    late: list[Callable[[], Any]] = []
    for name in ("changeform_view", "changelist_view"):

        def then_change(*args: Any, django: Any = getattr(ModelAdmin, name), **kwargs: Any) -> Any:
            try:
                return django(*args, **kwargs)
            finally:
                while late:
                    late.pop()()

        monkeypatch.setattr(ModelAdmin, name, then_change)
    with ExitStack() as connected:

        def change(**values: Any) -> None:
            def theirs(instance: Book, **_: Any) -> None:
                if instance._state.adding:
                    return
                connected.close()
                update = partial(Book.objects.filter(pk=instance.pk).update, **values)
                if connection.vendor != "sqlite":
                    in_threads(update)
                    return
                # On SQLite no other can commit during the page's transaction, so the change is simulated.
                late.append(update)
                if set(changes(instance)) & set(values):
                    raise StaleObject(instance)

            connected.enter_context(before_saves(theirs))

        yield change


def url_of(instance: Any) -> str:
    meta = instance._meta
    return f"/admin/{meta.app_label}/{meta.model_name}/{instance.pk}/change/"


def opened(client: Client, instance: Any) -> dict[str, str]:
    """Open the change form of an object."""
    response = client.get(url_of(instance))
    assert response.status_code == 200
    return sent_by(response.content.decode())


def test_two_editors_of_different_fields_lose_nothing(client: Client, book: Book) -> None:
    one, two = opened(client, book), opened(client, book)
    assert client.post(url_of(book), {**one, "name": "name"}).status_code == 302
    assert client.post(url_of(book), {**two, "status": "free"}).status_code == 302
    book.refresh_from_db()
    assert (book.name, book.status) == ("name", "free")
    told = [each.get_change_message() for each in LogEntry.objects.order_by("pk")]
    assert told == ["Changed Name.", "Changed Status."]


def test_two_editors_of_one_field_see_both_values_and_choose(client: Client, book: Book) -> None:
    one, two = opened(client, book), opened(client, book)
    client.post(url_of(book), {**one, "name": "theirs"})
    response = client.post(url_of(book), {**two, "name": "mine", "notes": "a long work"})
    assert response.status_code == 200
    html = response.content.decode()
    assert "Please correct the error below" in html
    assert "from “naem” to “theirs”" in html
    assert "keep mine: “mine”" in html
    assert "a long work" in html
    again = {**sent_by(html), "interlock_keep_name": "mine"}
    assert client.post(url_of(book), again).status_code == 302
    book.refresh_from_db()
    assert (book.name, book.notes) == ("mine", "a long work")


def test_the_hidden_field_is_hidden(client: Client, book: Book) -> None:
    html = client.get(url_of(book)).content.decode()
    assert f'<input type="hidden" name="{READ}"' in html
    assert "Interlock read" not in html
    assert READ not in client.get("/admin/library/book/add/").content.decode()


def test_a_change_just_before_the_save_is_shown_too(
    client: Client, book: Book, meanwhile: Callable[..., None]
) -> None:
    page = opened(client, book)
    meanwhile(name="theirs")
    response = client.post(url_of(book), {**page, "name": "mine"})
    assert response.status_code == 200
    assert "to “theirs”" in response.content.decode()
    assert not LogEntry.objects.exists()


def test_a_new_object_is_added_as_ever(client: Client) -> None:
    page = sent_by(client.get("/admin/library/book/add/").content.decode())
    assert client.post("/admin/library/book/add/", {**page, "name": "new"}).status_code == 302
    assert Book.objects.get().name == "new"


def test_inherited_models_and_read_only_fields_are_edited(client: Client) -> None:
    magazine = Magazine.objects.create(title="Time", pages=5)
    page = opened(client, magazine)
    Magazine.objects.update(title="theirs", month="June")
    html = client.post(url_of(magazine), {**page, "title": "mine", "issue": "7"}).content.decode()
    client.post(url_of(magazine), {**sent_by(html), "interlock_keep_title": "theirs"})
    magazine.refresh_from_db()
    assert (magazine.title, magazine.issue, magazine.month, magazine.pages) == ("theirs", 7, "June", 5)


class HidingForm(GuardedModelForm):
    class Meta:
        model = User
        fields = ["username"]


class DerivedForm(GuardedModelForm, UserChangeForm):
    pass


@pytest.mark.parametrize(
    ("form", "found"), [(HidingForm, ["interlock.E104"]), (DerivedForm, []), (UserChangeForm, []), (None, [])]
)
def test_a_guarded_form_that_hides_that_of_a_base_is_an_error(form: Any, found: list[str]) -> None:
    made: Any = type("Made", (GuardedAdmin, UserAdmin), {} if form is None else {"form": form})
    assert [each.id for each in made(User, admin.site).check() if each.id.startswith("interlock")] == found


class TestInlines:
    @pytest.fixture
    def author(self, book: Book) -> Any:
        return book.author

    def test_rows_of_an_inline_are_guarded_too(self, client: Client, book: Book, author: Any) -> None:
        page = opened(client, author)
        Book.objects.update(name="theirs")
        untouched = client.post(url_of(author), {**page, "book_set-0-status": "free", "book_set-1-name": "second"})
        assert untouched.status_code == 302
        book.refresh_from_db()
        assert (book.name, book.status) == ("theirs", "free")
        assert author.book_set.count() == 2

    def test_a_conflict_in_an_inline_is_shown(self, client: Client, book: Book, author: Any) -> None:
        page = opened(client, author)
        Book.objects.update(name="theirs")
        response = client.post(url_of(author), {**page, "book_set-0-name": "mine", "name": "Bea"})
        html = response.content.decode()
        assert 'name="book_set-0-interlock_keep_name"' in html
        author.refresh_from_db()
        assert author.name == "Ann"
        client.post(url_of(author), {**sent_by(html), "book_set-0-interlock_keep_name": "mine"})
        book.refresh_from_db()
        author.refresh_from_db()
        assert (book.name, author.name) == ("mine", "Bea")

    def test_a_late_change_undoes_the_save_of_an_inline_and_is_shown(
        self, client: Client, book: Book, author: Any, meanwhile: Callable[..., None]
    ) -> None:
        page = opened(client, author)
        meanwhile(name="theirs")
        response = client.post(url_of(author), {**page, "book_set-0-name": "mine", "name": "Bea"})
        assert "to “theirs”" in response.content.decode()
        author.refresh_from_db()
        assert author.name == "Ann"


class TestList:
    def page(self, client: Client) -> dict[str, str]:
        return sent_by(client.get("/admin/library/book/").content.decode())

    def test_rows_are_edited_in_the_list(self, client: Client, book: Book) -> None:
        page = {**self.page(client), "form-0-status": "free", "_save": "Save"}
        assert client.post("/admin/library/book/", page).status_code == 302
        book.refresh_from_db()
        assert book.status == "free"

    def test_a_change_just_before_the_save_saves_nothing_and_says_so(
        self, client: Client, book: Book, meanwhile: Callable[..., None]
    ) -> None:
        page = {**self.page(client), "form-0-status": "free", "_save": "Save"}
        meanwhile(status="lost")
        response = client.post("/admin/library/book/", page, follow=True)
        assert "Nothing was saved: somebody else has just changed “naem”." in response.content.decode()
        book.refresh_from_db()
        assert book.status == "lost"


def test_who_may_only_look_sees_no_hidden_field(book: Book) -> None:
    reader = User.objects.create_user("reader", is_staff=True)
    for model in ("book", "author"):
        reader.user_permissions.add(Permission.objects.get(codename=f"view_{model}"))
    client = Client()
    client.force_login(reader)
    for instance in (book, book.author):
        html = client.get(url_of(instance)).content.decode()
        assert "naem" in html
        assert "nterlock" not in html
