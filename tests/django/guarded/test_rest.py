"""REST framework: conflicts and missing preconditions become standard HTTP answers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from guarded.helpers import before_saves
from guarded.library.models import Author, Book, Counter
from guarded.library.views import BookSerializer, ShelvedBooks
from rest_framework.exceptions import PermissionDenied
from rest_framework.test import APIClient

from interlock.django.rest import views

PROBLEM = "application/problem+json"


@pytest.fixture
def client() -> APIClient:
    return APIClient(raise_request_exception=False)


@pytest.fixture
def tag(client: APIClient, url: str) -> str:
    """The tag of the object at the URL of the class."""
    return str(client.get(url)["ETag"])


@pytest.mark.parametrize("headers", [{}, {"If-Match": '"other"'}])
@pytest.mark.parametrize("view", ["strict", "books"])
def test_options_describe_the_change_without_a_precondition(
    client: APIClient, book: Book, view: str, headers: dict[str, str]
) -> None:
    response = client.options(f"/api/{view}/{book.pk}/", headers=headers)
    assert set(response.json()["actions"]) == {"PUT"}


class TestConflict:
    def test_it_is_409_with_the_fields_as_the_serializer_shows_them(
        self, client: APIClient, book: Book, meanwhile: Callable[..., None]
    ) -> None:
        other = Author.objects.create(name="Bob")
        meanwhile(name="theirs", price="2.50", bought="2024-05-01", author=None, tags=["b"])
        response = client.patch(
            f"/api/books/{book.pk}/",
            {"title": "mine", "price": "3.00", "bought": "2024-06-01", "author": other.pk, "tags": ["a"]},
        )
        assert response.status_code == 409
        assert response["Content-Type"] == PROBLEM
        assert response.json() == {
            "type": "urn:problem-type:interlock:stale-object",
            "title": "Conflict",
            "status": 409,
            "detail": "Somebody else has changed this meanwhile. Nothing was saved; "
            "read it again, and do your change again.",
            "deleted": False,
            "fields": {
                "title": {"original": "naem", "yours": "mine", "theirs": "theirs"},
                "price": {"original": "1.00", "yours": "3.00", "theirs": "2.50"},
                "bought": {"original": None, "yours": "2024-06-01", "theirs": "2024-05-01"},
                "author": {"original": book.author_id, "yours": other.pk, "theirs": None},
                "tags": {"original": ["red"], "yours": ["a"], "theirs": ["b"]},
            },
        }
        assert Book.objects.get().name == "theirs"

    def test_it_hides_what_the_serializer_hides(
        self, client: APIClient, book: Book, meanwhile: Callable[..., None]
    ) -> None:
        meanwhile(notes="their secret")
        response = client.patch(f"/api/books/{book.pk}/", {"secret": "my secret"})
        assert response.status_code == 409
        assert response.json()["fields"] == {}
        assert "secret" not in response.content.decode()

    def test_a_deleted_object_is_told(self, client: APIClient, book: Book) -> None:
        def theirs(**_: Any) -> None:
            Book.objects.all().delete()

        with before_saves(theirs):
            response = client.patch(f"/api/books/{book.pk}/", {"title": "mine"})
        assert response.status_code == 409
        assert response.json()["deleted"] is True

    def test_a_transaction_of_the_request_is_undone(
        self, client: APIClient, book: Book, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def also(**_: Any) -> None:
            Author.objects.create(name="also")

        meanwhile(name="theirs")
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
        with before_saves(also):
            response = client.patch(f"/api/books/{book.pk}/", {"title": "mine"})
        assert response.status_code == 409
        assert not Author.objects.filter(name="also").exists()


class TestStates:
    @pytest.fixture
    def url(self, book: Book) -> str:
        return f"/api/books/{book.pk}/"

    def test_each_object_has_a_tag_that_changes_with_it(self, client: APIClient, url: str) -> None:
        first = client.get(url)["ETag"]
        assert first == client.get(url)["ETag"] == client.head(url)["ETag"]
        changed = client.patch(url, {"price": "2.5"})["ETag"]
        assert changed == client.get(url)["ETag"] != first
        assert "ETag" not in client.get("/api/books/")
        created = client.post("/api/books/", {"title": "new"})
        assert created.status_code == 201
        assert created["ETag"] == client.get(f"/api/books/{created.json()['id']}/")["ETag"]

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_a_change_of_another_state_is_412(self, client: APIClient, url: str, tag: str, method: str) -> None:
        Book.objects.update(status="free")
        response = getattr(client, method)(url, {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 412
        assert response["Content-Type"] == PROBLEM
        assert response.json()["type"] == "urn:problem-type:interlock:precondition-failed"
        assert Book.objects.get().name == "naem"

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    @pytest.mark.parametrize("written", ["{}", 'W/"x", W/{}', "*"])
    def test_a_change_of_the_same_state_is_done(
        self, client: APIClient, url: str, tag: str, method: str, written: str
    ) -> None:
        response = getattr(client, method)(url, {"title": "mine"}, headers={"if-match": written.format(tag)})
        assert response.status_code in (200, 204)
        assert not Book.objects.filter(name="naem").exists()

    def test_a_late_change_of_another_field_is_412(
        self, client: APIClient, url: str, tag: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        validate = BookSerializer.run_validation

        def late(self: Any, data: Any) -> Any:
            Book.objects.update(status="free")
            return validate(self, data)

        monkeypatch.setattr(BookSerializer, "run_validation", late)
        response = client.patch(url, {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 412
        assert Book.objects.values_list("name", "status").get() == ("naem", "free")

    def test_a_change_just_before_the_deletion_is_412_too(
        self, client: APIClient, url: str, tag: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        matches = views._matches

        def late(header: str, tag: str) -> bool:
            matched = matches(header, tag)
            Book.objects.update(status="free")
            return matched

        monkeypatch.setattr(views, "_matches", late)
        response = client.delete(url, headers={"if-match": tag})
        assert response.status_code == 412
        assert Book.objects.values_list("name", "status").get() == ("naem", "free")

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_a_view_that_requires_it_changes_nothing_without(
        self, client: APIClient, book: Book, method: str
    ) -> None:
        url = f"/api/strict/{book.pk}/"
        response = getattr(client, method)(url, {"title": "mine"})
        assert response.status_code == 428
        assert response.json()["type"] == "urn:problem-type:interlock:precondition-required"
        assert Book.objects.get().name == "naem"
        tag = client.get(url)["ETag"]
        assert getattr(client, method)(url, {"title": "mine"}, headers={"if-match": tag}).status_code in (200, 204)

    def test_a_view_may_do_without(self, client: APIClient, book: Book) -> None:
        url = f"/api/tagless/{book.pk}/"
        assert "ETag" not in client.get(url)
        assert client.patch(url, {"title": "mine"}, headers={"if-match": '"x"'}).status_code == 200

    def test_a_field_in_which_the_last_wins_does_not_count(self, client: APIClient) -> None:
        counter = Counter.objects.create()
        url = f"/api/counters/{counter.pk}/"
        tag = client.get(url)["ETag"]
        Counter.objects.update(seen=99)
        assert client.patch(url, {"total": 5}, headers={"if-match": tag}).status_code == 200


class TestWhatTagsTell:
    """A tag depends only on the data that is shown."""

    @pytest.fixture(autouse=True)
    def conditional(self) -> Iterator[None]:
        with override_settings(MIDDLEWARE=["django.middleware.http.ConditionalGetMiddleware"]):
            yield

    @pytest.fixture
    def url(self, book: Book) -> str:
        return f"/api/shelved/{book.pk}/"

    def test_a_nested_object_that_has_changed_is_sent_again(self, client: APIClient, url: str, tag: str) -> None:
        assert client.get(url, headers={"if-none-match": tag}).status_code == 304
        Author.objects.update(name="Ann, married")
        assert client.get(url, headers={"if-none-match": tag}).status_code == 200

    def test_a_state_holds_whatever_else_is_shown(
        self, client: APIClient, url: str, tag: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Author.objects.update(name="Ann, married")
        monkeypatch.setattr(ShelvedBooks, "number", 2)
        assert client.get(url, headers={"if-none-match": tag}).status_code == 200
        response = client.patch(url, {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 200
        assert response["ETag"] == client.get(url)["ETag"]
        stale = client.patch(url, {"title": "again"}, headers={"if-match": tag})
        assert stale.status_code == 412

    def test_what_is_hidden_does_not_change_it(self, client: APIClient, url: str, tag: str) -> None:
        Book.objects.update(notes="another secret")
        assert client.get(url)["ETag"] == tag
        Book.objects.update(copies=2)
        assert client.get(url)["ETag"] != tag

    def test_fields_that_are_not_shown_may_count(
        self, client: APIClient, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ShelvedBooks, "etag_fields", ["notes"])
        tag = client.get(url)["ETag"]
        Book.objects.update(notes="another secret")
        response = client.patch(url, {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 412

    def test_nobody_without_the_key_can_make_it(self, client: APIClient, url: str, tag: str) -> None:
        with override_settings(SECRET_KEY="another"):
            other = client.get(url)["ETag"]
        mine, theirs = (each.strip('"').split(".") for each in (tag, other))
        assert not set(mine) & set(theirs)


class TestWhatAConflictShows:
    def test_nothing_of_a_row_that_the_view_does_not_show(
        self, client: APIClient, book: Book, meanwhile: Callable[..., None]
    ) -> None:
        meanwhile(name="their secret", status="free")
        response = client.patch(f"/api/shelved/{book.pk}/", {"title": "mine"})
        assert response.status_code == 409
        assert response.json()["fields"] == {}
        assert "their secret" not in response.content.decode()

    def test_nothing_of_a_row_that_the_client_may_not_see_any_more(
        self, client: APIClient, book: Book, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def check(view: ShelvedBooks, request: Any, instance: Book) -> None:
            if instance.name != "naem":
                raise PermissionDenied

        monkeypatch.setattr(ShelvedBooks, "check_object_permissions", check)
        meanwhile(name="their secret")
        response = client.patch(f"/api/shelved/{book.pk}/", {"title": "mine"})
        assert response.status_code == 409
        assert response.json()["fields"] == {}


@pytest.mark.parametrize("key", ["{:0300}", "{}" + 150 * "%0A"])
def test_an_address_that_is_no_label_is_shown_as_one(client: APIClient, book: Book, key: str) -> None:
    response = client.patch(f"/api/locked/{key.format(book.pk)}/", {"title": "mine"})
    assert response.status_code == 200
    assert Book.objects.get().name == "mine"
