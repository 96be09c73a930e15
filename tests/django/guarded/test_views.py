"""Plain views: errors become HTTP answers, and class-based views overwrite no change of others."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path
from django.views.generic import DeleteView, UpdateView
from guarded.browser import sent_by
from guarded.helpers import in_threads
from guarded.library.models import Book, PlainBook

from interlock import LockLost, LockTimeout, NotHeld, PayloadMismatch, StoreError
from interlock.django import occupy
from interlock.django.guarded import StaleObject
from interlock.django.testing import override_locks
from interlock.django.views import GuardedUpdateView, OccupiedUpdateView

RAISED: list[BaseException] = []


def failing(request: HttpRequest) -> HttpResponse:
    raise RAISED[-1]


async def failing_later(request: HttpRequest) -> HttpResponse:
    raise RAISED[-1]


class Page(UpdateView):  # type: ignore[type-arg]
    model = Book
    fields = ["name", "status"]
    success_url = "/done"

    def render_to_response(self, context: Any, **options: Any) -> HttpResponse:
        return HttpResponse(engines["django"].from_string("{{ form.as_p }}").render(context, self.request))


class GuardedPage(GuardedUpdateView, Page):
    pass


class OccupiedPage(OccupiedUpdateView, Page):
    occupy_timeout = 0.1


class OccupiedDeletion(OccupiedUpdateView, DeleteView):  # type: ignore[misc, type-arg]
    model = Book
    success_url = "/done"
    occupy_timeout = 0.1


urlpatterns = [
    path("failing", failing),
    path("later", failing_later),
    path("guarded/<int:pk>", GuardedPage.as_view()),
    path("occupied/<int:pk>", OccupiedPage.as_view()),
    path("delete/<int:pk>", OccupiedDeletion.as_view()),
]
MIDDLEWARE = ["interlock.django.middleware.LockErrorMiddleware"]


@pytest.fixture(autouse=True)
def site() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=MIDDLEWARE), override_locks():
        yield
    RAISED.clear()


ANSWERS = [
    (lambda: LockTimeout("library.book:1"), 423, "locked", "1"),
    (lambda: StaleObject(Book(pk=1, name="secret"), {}), 409, "stale-object", None),
    (lambda: StaleObject(Book(pk=1), deleted=True), 409, "stale-object", None),
    (lambda: LockLost("library.book:1"), 409, "lock-lost", None),
    (lambda: PayloadMismatch("pay:secret"), 422, "payload-mismatch", None),
    (lambda: StoreError("redis://:secret@cache is away"), 503, "store-error", "1"),
]


@pytest.mark.parametrize(("make", "status", "kind", "retry"), ANSWERS)
class TestAnswers:
    def test_a_page(self, make: Any, status: int, kind: str, retry: str | None) -> None:
        RAISED.append(make())
        response = Client().get("/failing", headers={"accept": "text/html,*/*"})
        assert (response.status_code, response.headers.get("Retry-After")) == (status, retry)
        assert response["Content-Type"].startswith("text/html")
        assert "<h1>" in response.content.decode()
        assert "secret" not in response.content.decode()

    def test_a_problem_document(self, make: Any, status: int, kind: str, retry: str | None) -> None:
        RAISED.append(make())
        response = Client().get("/failing", headers={"accept": "application/json"})
        assert (response.status_code, response.headers.get("Retry-After")) == (status, retry)
        assert response["Content-Type"] == "application/problem+json"
        assert (response.json()["type"], response.json()["status"]) == (f"urn:problem-type:interlock:{kind}", status)
        assert "secret" not in response.content.decode()

    def test_an_async_view(self, make: Any, status: int, kind: str, retry: str | None) -> None:
        RAISED.append(make())
        response = asyncio.run(AsyncClient().get("/later"))
        assert response.status_code == status


def test_who_sends_json_is_answered_so() -> None:
    RAISED.append(LockTimeout("a"))
    response = Client().post("/failing", {}, content_type="application/json")
    assert response["Content-Type"] == "application/problem+json"


def test_other_errors_are_left_alone() -> None:
    RAISED.append(NotHeld("a mistake of the program"))
    with pytest.raises(NotHeld):
        Client().get("/failing")


class TestGuardedUpdateView:
    def test_both_values_are_shown(self, book: Book) -> None:
        address = f"/guarded/{book.pk}"
        page = sent_by(Client().get(address).content.decode())
        Book.objects.update(name="theirs")
        response = Client().post(address, {**page, "name": "mine"})
        assert response.status_code == 200
        assert "take theirs: “theirs”" in response.content.decode()

    def test_what_changes_just_while_it_is_saved_is_looked_at_anew(
        self, book: Book, meanwhile: Callable[..., None]
    ) -> None:
        address = f"/guarded/{book.pk}"
        page = sent_by(Client().get(address).content.decode())
        meanwhile(name="theirs")
        response = Client().post(address, {**page, "name": "mine"})
        assert response.status_code == 200
        assert "take theirs: “theirs”" in response.content.decode()

    def test_a_model_that_is_not_guarded_is_said(self) -> None:
        class Wrong(GuardedUpdateView, Page):
            model = PlainBook  # type: ignore[assignment]

        plain = PlainBook.objects.create(name="plain")
        with pytest.raises(ImproperlyConfigured, match="not Guarded"):
            Wrong.as_view()(RequestFactory().get("/"), pk=plain.pk)


class TestOccupiedUpdateView:
    def test_it_is_423_while_somebody_else_has_it(self, book: Book) -> None:
        address = f"/occupied/{book.pk}"
        with occupy(book):
            (response,) = in_threads(lambda: Client().post(address, {"name": "mine", "status": "use"}))
        assert response.status_code == 423
        assert Book.objects.get().name == "naem"

    def test_an_address_that_is_too_long_for_a_label_is_cut(self, book: Book) -> None:
        response = Client().post(f"/occupied/{book.pk:0300}", {"name": "mine", "status": "use"})
        assert response.status_code == 302
        assert Book.objects.get().name == "mine"

    def test_it_is_done_when_nobody_has_it(self, book: Book) -> None:
        response = Client().post(f"/occupied/{book.pk}", {"name": "mine", "status": "use"})
        assert response.status_code == 302
        assert Book.objects.get().name == "mine"

    def test_to_look_occupies_nothing(self, book: Book) -> None:
        with occupy(book):
            (response,) = in_threads(lambda: Client().get(f"/occupied/{book.pk}"))
        assert response.status_code == 200

    def test_what_is_not_there_is_404(self) -> None:
        assert Client().post("/occupied/0", {"name": "mine"}).status_code == 404

    @pytest.mark.filterwarnings("ignore:DeleteView uses FormMixin")  # of Django 4.2
    @pytest.mark.parametrize("method", ["post", "delete"])
    def test_it_is_not_deleted_while_somebody_else_has_it(self, book: Book, method: str) -> None:
        def delete() -> HttpResponse:
            return getattr(Client(), method)(f"/delete/{book.pk}")  # type: ignore[no-any-return]

        with occupy(book):
            (response,) = in_threads(delete)
        assert response.status_code == 423
        assert Book.objects.count() == 1
        assert delete().status_code == 302
        assert Book.objects.count() == 0

    def test_a_page_that_deletes_nothing_does_not_allow_it(self, book: Book) -> None:
        response = Client().delete(f"/occupied/{book.pk}")
        assert response.status_code == 405
        assert "DELETE" not in response["Allow"]
