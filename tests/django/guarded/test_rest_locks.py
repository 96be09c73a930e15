"""REST framework: occupied objects, locked views, errors as HTTP answers, and the schema that lists them."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from guarded.helpers import in_threads
from guarded.library.models import Book
from guarded.library.views import OccupiedBooks
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.views import APIView

from interlock import LockLost, LockTimeout, PayloadMismatch, StoreError
from interlock.django import locks, occupy
from interlock.django.configured import forget_connections
from interlock.django.guarded import StaleObject
from interlock.django.rest import OccupiedViewSetMixin, exception_handler

PROBLEM = "application/problem+json"


@pytest.fixture
def client() -> APIClient:
    return APIClient(raise_request_exception=False)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Close the connections of the locks, which may be those of a request."""
    yield
    forget_connections(setting="INTERLOCK")


def while_occupied(book: Book, method: str, url: str, *data: Any, **headers: Any) -> Response:
    """Send a request while somebody else has occupied a book."""
    with occupy(book):
        (response,) = in_threads(lambda: getattr(APIClient(), method)(url, *data, headers=headers))
    assert isinstance(response, HttpResponse)
    return response  # type: ignore[return-value]


class TestOccupied:
    @pytest.mark.parametrize("view", ["locked", "occupied"])
    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_it_is_423_while_somebody_else_has_it(self, book: Book, view: str, method: str) -> None:
        response = while_occupied(book, method, f"/api/{view}/{book.pk}/", {"title": "mine"})
        assert response.status_code == 423
        assert response["Content-Type"] == PROBLEM
        assert Book.objects.get().name == "naem"

    def test_it_says_when_to_try_again(self, book: Book) -> None:
        response = while_occupied(book, "patch", f"/api/occupied/{book.pk}/", {"title": "mine"})
        assert response["Retry-After"] == "3"
        assert response.json() == {
            "type": "urn:problem-type:interlock:locked",
            "title": "Locked",
            "status": 423,
            "detail": "Somebody else is working on this object. Try again in 3 s.",
        }

    @pytest.mark.parametrize("view", ["locked", "occupied"])
    @pytest.mark.parametrize("method", ["put", "patch", "delete"])
    def test_it_is_done_when_nobody_has_it(self, client: APIClient, book: Book, view: str, method: str) -> None:
        response = getattr(client, method)(f"/api/{view}/{book.pk}/", {"title": "mine"})
        assert response.status_code in (200, 204)
        assert not Book.objects.filter(name="naem").exists()
        assert locks.claims() == []

    def test_reading_and_creating_occupy_nothing(self, book: Book) -> None:
        assert while_occupied(book, "get", f"/api/occupied/{book.pk}/").status_code == 200
        assert while_occupied(book, "get", "/api/occupied/").status_code == 200
        assert while_occupied(book, "post", "/api/occupied/", {"title": "new"}).status_code == 201

    def test_what_is_not_there_is_404(self, client: APIClient) -> None:
        assert client.delete("/api/occupied/0/").status_code == 404

    def test_a_lost_state_is_told_without_waiting(self, book: Book) -> None:
        url = f"/api/occupied/{book.pk}/"
        assert while_occupied(book, "patch", url, {"title": "mine"}, **{"if-match": '"x"'}).status_code == 412

    def test_actions_of_ones_own_occupy_too(self, client: APIClient, book: Book) -> None:
        url = f"/api/occupied/{book.pk}/lend/"
        assert client.post(url).json() == {"copies": 0}
        assert while_occupied(book, "post", url).status_code == 423

    if settings.DATABASE != "sqlite":  # where a transaction that has read keeps the claims from being written

        def test_a_transaction_of_the_request_keeps_it_to_its_end(
            self, client: APIClient, book: Book, monkeypatch: pytest.MonkeyPatch
        ) -> None:
            monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
            response = client.patch(f"/api/locked/{book.pk}/", {"title": "mine"})
            assert response.status_code == 200
            assert locks.claims() == []

    @pytest.mark.parametrize(("view", "change", "status"), [("occupied", "update", 200), ("locked", "delete", 404)])
    def test_it_is_read_afresh_once_it_is_occupied(
        self, client: APIClient, book: Book, monkeypatch: pytest.MonkeyPatch, view: str, change: str, status: int
    ) -> None:
        def late(view: Any, instance: Book) -> Any:
            Book.objects.all().delete() if change == "delete" else Book.objects.update(status="free")
            return occupy(instance)

        monkeypatch.setattr(OccupiedViewSetMixin, "occupy", late)
        response = client.patch(f"/api/{view}/{book.pk}/", {"title": "mine"})
        assert response.status_code == status
        assert Book.objects.filter(name="mine", status="free").exists() == (status == 200)


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

    @pytest.mark.parametrize(
        ("error", "status", "kind", "retry"),
        [
            (StaleObject(Book(pk=1, name="secret"), {}), 409, "stale-object", None),
            (LockTimeout("book:1"), 423, "locked", "1"),
            (LockLost("book:1"), 409, "lock-lost", None),
            (PayloadMismatch("pay:secret"), 422, "payload-mismatch", None),
            (StoreError("redis://user:secret@cache is away"), 503, "store-error", "1"),
        ],
    )
    def test_an_error_is_told_without_values(
        self, error: Exception, status: int, kind: str, retry: str | None
    ) -> None:
        response = self.answer(error)
        assert (response.status_code, response.get("Retry-After")) == (status, retry)
        assert response.data["type"] == f"urn:problem-type:interlock:{kind}"
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

        from interlock.django.rest.schema import MixinExtension

        class Other(OccupiedBooks):
            schema = AutoSchema()

        extension = MixinExtension(Other.as_view({"get": "list"}))
        assert extension.view_replacement() is Other
