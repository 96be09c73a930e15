"""REST framework: conflicts, lost states and occupied objects are answers that a client understands."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.signals import pre_save
from django.test import override_settings
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from guarded.helpers import in_threads
from guarded.library.models import Author, Book, Counter
from guarded.library.views import BookSerializer, LockedBooks, OccupiedBooks, ShelvedBooks
from rest_framework.exceptions import PermissionDenied
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.views import APIView

from interlock import LockLost, LockTimeout, StoreError
from interlock.django import locks, occupy
from interlock.django.conf import forget_connections
from interlock.django.guarded import StaleObject
from interlock.django.rest import exception_handler, views

PROBLEM = "application/problem+json"


@pytest.fixture
def client() -> APIClient:
    return APIClient(raise_request_exception=False)


@pytest.fixture
def book() -> Book:
    return Book.objects.create(name="naem", status="use", notes="secret", author=Author.objects.create(name="Ann"))


@pytest.fixture
def meanwhile() -> Iterator[Callable[..., None]]:
    """Have somebody else change a book just before the next save of one."""
    connected: list[Any] = []

    def change(**values: Any) -> None:
        def theirs(instance: Book, **_: Any) -> None:
            pre_save.disconnect(theirs, sender=Book)
            Book.objects.filter(pk=instance.pk).update(**values)

        connected.append(theirs)
        pre_save.connect(theirs, sender=Book)

    yield change
    for each in connected:
        pre_save.disconnect(each, sender=Book)


class TestSerializers:
    def test_a_serializer_writes_only_what_it_has_changed(self, book: Book) -> None:
        student, administrator = Book.objects.get(), Book.objects.get()
        for instance, data in ((student, {"status": "free"}), (administrator, {"title": "name"})):
            serializer = BookSerializer(instance, data=data, partial=True)
            serializer.is_valid(raise_exception=True)
            serializer.save()
        book.refresh_from_db()
        assert (book.name, book.status) == ("name", "free")

    def test_an_unchanged_view_set_loses_nothing(self, client: APIClient, book: Book) -> None:
        def patch(data: dict[str, Any]) -> Callable[[], int]:
            return lambda: APIClient().patch(f"/api/plain/{book.pk}/", data).status_code

        for _ in range(10):
            assert in_threads(patch({"title": "name"}), patch({"status": "free"})) == [200, 200]
            assert Book.objects.filter(name="name", status="free").update(name="naem", status="use") == 1


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
            "detail": "Somebody else has changed the object. Read it again, and do your change again.",
            "deleted": False,
            "fields": {
                "title": {"original": "naem", "yours": "mine", "theirs": "theirs"},
                "price": {"original": "1.00", "yours": "3.00", "theirs": "2.50"},
                "bought": {"original": None, "yours": "2024-06-01", "theirs": "2024-05-01"},
                "author": {"original": book.author_id, "yours": other.pk, "theirs": None},
                "tags": {"original": [], "yours": ["a"], "theirs": ["b"]},
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

        pre_save.connect(theirs, sender=Book)
        try:
            response = client.patch(f"/api/books/{book.pk}/", {"title": "mine"})
        finally:
            pre_save.disconnect(theirs, sender=Book)
        assert response.status_code == 409
        assert response.json()["deleted"] is True

    def test_merged_fields_are_no_conflict(self, client: APIClient) -> None:
        counter = Counter.objects.create(total=5)

        def theirs(**_: Any) -> None:
            pre_save.disconnect(theirs, sender=Counter)
            Counter.objects.update(total=7)

        pre_save.connect(theirs, sender=Counter)
        response = client.patch(f"/api/counters/{counter.pk}/", {"total": 6})
        assert response.status_code == 200
        assert response.json()["total"] == 8

    def test_the_browsable_api_shows_it(self, client: APIClient, book: Book, meanwhile: Callable[..., None]) -> None:
        meanwhile(name="theirs")
        response = client.patch(f"/api/books/{book.pk}/", {"title": "mine"}, headers={"accept": "text/html"})
        assert response.status_code == 409
        assert response["Content-Type"].startswith("text/html")
        assert "HTTP 409 Conflict" in response.content.decode()
        assert "theirs" in response.content.decode()

    def test_a_transaction_of_the_request_is_undone(
        self, client: APIClient, book: Book, meanwhile: Callable[..., None]
    ) -> None:
        def also(**_: Any) -> None:
            Author.objects.create(name="also")

        meanwhile(name="theirs")
        pre_save.connect(also, sender=Book)
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        try:
            response = client.patch(f"/api/books/{book.pk}/", {"title": "mine"})
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False
            pre_save.disconnect(also, sender=Book)
        assert response.status_code == 409
        assert not Author.objects.filter(name="also").exists()


class TestStates:
    def test_each_object_has_a_tag_that_changes_with_it(self, client: APIClient, book: Book) -> None:
        url = f"/api/books/{book.pk}/"
        first = client.get(url)["ETag"]
        assert first == client.get(url)["ETag"] == client.head(url)["ETag"]
        changed = client.patch(url, {"price": "2.5"})["ETag"]
        assert changed == client.get(url)["ETag"] != first
        assert "ETag" not in client.get("/api/books/")
        created = client.post("/api/books/", {"title": "new"})
        assert created.status_code == 201
        assert created["ETag"] == client.get(f"/api/books/{created.json()['id']}/")["ETag"]

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_a_change_of_another_state_is_412(self, client: APIClient, book: Book, method: str) -> None:
        url = f"/api/books/{book.pk}/"
        tag = client.get(url)["ETag"]
        Book.objects.update(status="free")
        response = getattr(client, method)(url, {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 412
        assert response["Content-Type"] == PROBLEM
        assert response.json()["type"] == "urn:problem-type:interlock:precondition-failed"
        assert Book.objects.get().name == "naem"

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    @pytest.mark.parametrize("written", ["{}", "W/{}", '"x", {}', "*"])
    def test_a_change_of_the_same_state_is_done(
        self, client: APIClient, book: Book, method: str, written: str
    ) -> None:
        url = f"/api/books/{book.pk}/"
        tag = written.format(client.get(url)["ETag"])
        response = getattr(client, method)(url, {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code in (200, 204)
        assert not Book.objects.filter(name="naem").exists()

    def test_a_change_just_before_the_save_is_412_too_even_of_another_field(
        self, client: APIClient, book: Book, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = f"/api/books/{book.pk}/"
        tag = client.get(url)["ETag"]
        validate = BookSerializer.run_validation

        def late(self: Any, data: Any) -> Any:
            Book.objects.update(status="free")
            return validate(self, data)

        monkeypatch.setattr(BookSerializer, "run_validation", late)
        response = client.patch(url, {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 412
        assert Book.objects.values_list("name", "status").get() == ("naem", "free")

    def test_a_change_just_before_the_deletion_is_412_too(
        self, client: APIClient, book: Book, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = f"/api/books/{book.pk}/"
        tag = client.get(url)["ETag"]
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
        response = getattr(client, method)(f"/api/strict/{book.pk}/", {"title": "mine"})
        assert response.status_code == 428
        assert Book.objects.get().name == "naem"

    def test_a_view_may_require_it(self, client: APIClient, book: Book) -> None:
        url = f"/api/strict/{book.pk}/"
        response = client.patch(url, {"title": "mine"})
        assert response.status_code == 428
        assert response.json()["type"] == "urn:problem-type:interlock:precondition-required"
        tag = client.get(url)["ETag"]
        assert client.patch(url, {"title": "mine"}, headers={"if-match": tag}).status_code == 200

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
    """A tag is of what is shown, and tells nobody of anything else."""

    def get(self, client: APIClient, book: Book, tag: str) -> int:
        response = client.get(f"/api/shelved/{book.pk}/", headers={"if-none-match": tag})
        return int(response.status_code)

    @pytest.fixture(autouse=True)
    def conditional(self) -> Iterator[None]:
        with override_settings(MIDDLEWARE=["django.middleware.http.ConditionalGetMiddleware"]):
            yield

    def test_what_has_not_changed_is_304(self, book: Book) -> None:
        client = APIClient()
        tag = client.get(f"/api/shelved/{book.pk}/")["ETag"]
        assert self.get(client, book, tag) == 304

    def test_a_nested_object_that_has_changed_is_sent_again(self, book: Book) -> None:
        client = APIClient()
        tag = client.get(f"/api/shelved/{book.pk}/")["ETag"]
        Author.objects.update(name="Ann, married")
        assert self.get(client, book, tag) == 200

    def test_a_state_holds_whatever_else_is_shown(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        client = APIClient()
        tag = client.get(f"/api/shelved/{book.pk}/")["ETag"]
        Author.objects.update(name="Ann, married")
        monkeypatch.setattr(ShelvedBooks, "number", 2)
        assert self.get(client, book, tag) == 200
        response = client.patch(f"/api/shelved/{book.pk}/", {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 200
        assert response["ETag"] == client.get(f"/api/shelved/{book.pk}/")["ETag"]
        stale = client.patch(f"/api/shelved/{book.pk}/", {"title": "again"}, headers={"if-match": tag})
        assert stale.status_code == 412

    def test_what_is_hidden_does_not_change_it(self, book: Book) -> None:
        client = APIClient()
        tag = client.get(f"/api/shelved/{book.pk}/")["ETag"]
        Book.objects.update(notes="another secret")
        assert client.get(f"/api/shelved/{book.pk}/")["ETag"] == tag
        Book.objects.update(copies=2)
        assert client.get(f"/api/shelved/{book.pk}/")["ETag"] != tag

    def test_fields_that_are_not_shown_may_count(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ShelvedBooks, "etag_fields", ["notes"])
        client = APIClient()
        tag = client.get(f"/api/shelved/{book.pk}/")["ETag"]
        Book.objects.update(notes="another secret")
        response = client.patch(f"/api/shelved/{book.pk}/", {"title": "mine"}, headers={"if-match": tag})
        assert response.status_code == 412

    def test_nobody_without_the_key_can_make_it(self, book: Book) -> None:
        client = APIClient()
        tag = client.get(f"/api/shelved/{book.pk}/")["ETag"]
        with override_settings(SECRET_KEY="another"):
            other = client.get(f"/api/shelved/{book.pk}/")["ETag"]
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


class TestOccupied:
    @pytest.fixture(autouse=True)
    def free(self) -> Iterator[None]:
        yield
        OccupiedBooks.held.clear()
        OccupiedBooks.seen.clear()

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_it_is_423_while_somebody_else_has_it(self, client: APIClient, book: Book, method: str) -> None:
        OccupiedBooks.held.add(book.pk)
        response = getattr(client, method)(f"/api/occupied/{book.pk}/", {"title": "mine"})
        assert response.status_code == 423
        assert response["Retry-After"] == "3"
        assert response["Content-Type"] == PROBLEM
        assert response.json() == {
            "type": "urn:problem-type:interlock:locked",
            "title": "Locked",
            "status": 423,
            "detail": "Somebody else is working on this object. Try again in 3 s.",
        }
        assert Book.objects.get().name == "naem"

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_it_is_occupied_once_and_freed(self, client: APIClient, book: Book, method: str) -> None:
        response = getattr(client, method)(f"/api/occupied/{book.pk}/", {"title": "mine"})
        assert response.status_code in (200, 204)
        assert OccupiedBooks.seen == ["use"]
        assert OccupiedBooks.held == set()

    def test_it_is_read_afresh_once_it_is_occupied(self, client: APIClient, book: Book) -> None:
        Book.objects.update(status="stale")
        response = client.patch(f"/api/occupied/{book.pk}/", {"title": "mine"})
        assert response.json()["status"] == "fresh"

    def test_reading_and_creating_occupy_nothing(self, client: APIClient, book: Book) -> None:
        OccupiedBooks.held.add(book.pk)
        assert client.get(f"/api/occupied/{book.pk}/").status_code == 200
        assert client.get("/api/occupied/").status_code == 200
        assert client.post("/api/occupied/", {"title": "new"}).status_code == 201

    def test_what_is_not_there_is_not_waited_for(self, client: APIClient) -> None:
        assert client.delete("/api/occupied/0/").status_code == 404
        assert OccupiedBooks.seen == []

    def test_a_lost_state_is_told_without_waiting(self, client: APIClient, book: Book) -> None:
        response = client.patch(f"/api/occupied/{book.pk}/", {"title": "mine"}, headers={"if-match": '"x"'})
        assert response.status_code == 412
        assert OccupiedBooks.seen == []

    def test_actions_of_ones_own_occupy_too(self, client: APIClient, book: Book) -> None:
        url = f"/api/occupied/{book.pk}/lend/"
        assert client.post(url).json() == {"copies": 0}
        OccupiedBooks.held.add(book.pk)
        assert client.post(url).status_code == 423

    def test_the_browsable_api_shows_it(self, client: APIClient, book: Book) -> None:
        OccupiedBooks.held.add(book.pk)
        response = client.patch(f"/api/occupied/{book.pk}/", {"title": "mine"}, headers={"accept": "text/html"})
        assert "HTTP 423 Locked" in response.content.decode()


class TestLocks:
    """With `occupy` itself, on the store that the settings name."""

    @pytest.fixture(autouse=True)
    def forget(self) -> Iterator[None]:
        yield
        forget_connections(setting="INTERLOCK")

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_it_is_423_while_somebody_else_has_it(self, book: Book, method: str) -> None:
        url = f"/api/locked/{book.pk}/"
        with occupy(book):
            (response,) = in_threads(lambda: getattr(APIClient(), method)(url, {"title": "mine"}))
        assert response.status_code == 423
        assert Book.objects.get().name == "naem"

    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_it_is_done_when_nobody_has_it(self, client: APIClient, book: Book, method: str) -> None:
        response = getattr(client, method)(f"/api/locked/{book.pk}/", {"title": "mine"})
        assert response.status_code in (200, 204)
        assert not Book.objects.filter(name="naem").exists()
        assert locks.claims() == []

    if settings.DATABASE != "sqlite":  # where a transaction that has read keeps the claims from being written

        def test_a_transaction_of_the_request_keeps_it_to_its_end(self, client: APIClient, book: Book) -> None:
            connection.settings_dict["ATOMIC_REQUESTS"] = True
            try:
                response = client.patch(f"/api/locked/{book.pk}/", {"title": "mine"})
            finally:
                connection.settings_dict["ATOMIC_REQUESTS"] = False
            assert response.status_code == 200
            assert locks.claims() == []

    def test_what_was_deleted_while_it_was_waited_for_is_404(
        self, client: APIClient, book: Book, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def late(view: LockedBooks, instance: Book) -> Any:
            Book.objects.all().delete()
            return occupy(instance)

        monkeypatch.setattr(LockedBooks, "occupy", late)
        assert client.patch(f"/api/locked/{book.pk}/", {"title": "mine"}).status_code == 404


class TestExceptionHandler:
    """As the setting EXCEPTION_HANDLER, for views without the mixins."""

    def answer(self, error: Exception) -> Response:
        class View(APIView):
            def get(self, request: Any) -> Response:
                raise error

            def get_exception_handler(self) -> Any:
                return exception_handler

        response: Response = View.as_view()(APIRequestFactory().get("/"))
        return response

    def test_a_conflict_is_told_without_values(self, book: Book) -> None:
        response = self.answer(StaleObject(book, {}))
        assert response.status_code == 409
        assert response.data["fields"] == {}

    def test_an_occupied_object_is_told(self) -> None:
        response = self.answer(LockTimeout("book:1"))
        assert (response.status_code, response["Retry-After"]) == (423, "1")

    def test_a_lost_lock_is_told(self) -> None:
        response = self.answer(LockLost("book:1"))
        assert (response.status_code, response.data["type"]) == (409, "urn:problem-type:interlock:lock-lost")

    def test_locks_that_can_not_be_reached_are_told(self) -> None:
        response = self.answer(StoreError("redis://user:secret@cache is away"))
        assert (response.status_code, response["Retry-After"]) == (503, "1")
        assert response.data["type"] == "urn:problem-type:interlock:store-error"
        assert "secret" not in str(response.data)

    def test_all_else_is_as_ever(self) -> None:
        from rest_framework.exceptions import NotFound

        assert self.answer(NotFound()).data == {"detail": "Not found."}


class TestSchema:
    @pytest.fixture
    def schema(self) -> dict[str, Any]:
        with GENERATOR_STATS.silence():
            found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
        assert not GENERATOR_STATS
        return found

    @pytest.fixture
    def paths(self, schema: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = schema["paths"]
        return found

    def test_it_describes_a_problem(self, schema: dict[str, Any]) -> None:
        problem = schema["components"]["schemas"]["Problem"]
        assert problem["required"] == ["detail", "status", "title", "type"]
        assert set(problem["properties"]) == {"type", "title", "status", "detail", "fields", "deleted"}

    @pytest.mark.parametrize(
        ("path", "method", "codes"),
        [
            ("plain", "patch", {"200"}),
            ("books", "get", {"200"}),
            ("books", "patch", {"200", "409", "412"}),
            ("books", "put", {"200", "409", "412"}),
            ("books", "delete", {"204", "412"}),
            ("strict", "patch", {"200", "409", "412", "428"}),
            ("tagless", "patch", {"200", "409"}),
            ("occupied", "patch", {"200", "409", "412", "423"}),
            ("occupied", "delete", {"204", "412", "423"}),
        ],
    )
    def test_it_shows_the_answers(self, paths: dict[str, Any], path: str, method: str, codes: set[str]) -> None:
        operation = paths[f"/api/{path}/{{id}}/"][method]
        assert set(operation["responses"]) == codes
        for code in codes - {"200", "204"}:
            assert PROBLEM in operation["responses"][code]["content"]

    def test_it_shows_the_headers(self, paths: dict[str, Any]) -> None:
        operation = paths["/api/strict/{id}/"]["patch"]
        (parameter,) = (each for each in operation["parameters"] if each["name"] == "If-Match")
        assert parameter["required"] is True
        assert "ETag" in operation["responses"]["200"]["headers"]
        assert "ETag" in paths["/api/books/{id}/"]["get"]["responses"]["200"]["headers"]
        assert "headers" not in paths["/api/books/"]["get"]["responses"]["200"]
        occupied = paths["/api/occupied/{id}/"]["delete"]["responses"]
        assert "Retry-After" in occupied["423"]["headers"]

    def test_another_schema_class_is_left_alone(self) -> None:
        from rest_framework.schemas.openapi import AutoSchema

        from interlock.django.rest.schema import GuardedExtension

        class Other(OccupiedBooks):
            schema = AutoSchema()

        extension = GuardedExtension(Other.as_view({"get": "list"}))
        assert extension.view_replacement() is Other
