"""`@occupies`: functions, views and tasks that run with a lock named after their arguments."""

import datetime
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery import Celery
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

from interlock import InvalidArgument, LockTimeout
from interlock.django import alocks, locks, occupies
from interlock.django.middleware import answer_of


def held() -> list[str]:
    """Return the names that are held now."""
    return [view.name for view in locks.claims()]


def test_the_name_is_made_of_the_arguments() -> None:
    @occupies("report:{date}:{kind}")
    def report(date: datetime.date, kind: str = "short") -> list[str]:
        return held()

    assert report(datetime.date(2026, 5, 1)) == ["report:2026-05-01:short"]
    assert report(kind="long", date=datetime.date(2026, 5, 1)) == ["report:2026-05-01:long"]
    assert held() == []
    assert report.__name__ == "report"


def test_a_response_speaks_of_the_name_that_is_held() -> None:
    @occupies("report:{date}", timeout=0)
    def report(date: str) -> None:
        """Only its lock is of interest."""

    with locks.lock("report:today"), pytest.raises(LockTimeout) as caught:
        report("today")
    answer = answer_of(caught.value, 2)
    assert answer is not None
    assert (answer.status, answer.detail) == (423, "Somebody else holds the lock “report:today”. Try again in 2 s.")


def test_it_can_be_made_of_an_attribute_of_an_argument() -> None:
    @occupies("book:{book.pk}")
    def work(book: Any) -> list[str]:
        return held()

    assert work(SimpleNamespace(pk=7)) == ["book:7"]
    with pytest.raises(InvalidArgument, match="cannot be made"):
        work(SimpleNamespace())


def test_a_coroutine_function_and_an_async_view() -> None:
    @occupies("page:{slug}")
    async def view(request: HttpRequest, slug: str) -> HttpResponse:
        return HttpResponse(",".join(each.name for each in await alocks.claims()))

    async def story() -> bytes:
        try:
            return bytes((await view(RequestFactory().get("/"), slug="emma")).content)
        finally:
            await alocks.close()

    assert async_to_sync(story)() == b"page:emma"


def test_a_view_of_a_class() -> None:
    @method_decorator(occupies("page:{slug}"), name="dispatch")
    class Page(View):
        def get(self, request: HttpRequest, slug: str) -> HttpResponse:
            return HttpResponse(held()[0])

    assert Page.as_view()(RequestFactory().get("/"), slug="emma").content == b"page:emma"


def test_under_atomic_requests_the_lock_is_kept_until_the_commit() -> None:
    @occupies("page")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with transaction.atomic():
        view(RequestFactory().get("/"))
        assert held() == ["page"]
        view(RequestFactory().get("/"))
    assert held() == []


def test_a_coroutine_function_in_a_transaction_is_refused() -> None:
    @occupies("page")
    async def work() -> None:
        raise AssertionError

    with pytest.raises(InvalidArgument, match="in the function that holds the transaction"):
        with transaction.atomic():
            async_to_sync(work)()
    assert held() == []


@pytest.fixture
def celery() -> Iterator[Celery]:
    app = Celery("tests", set_as_current=False)
    app.conf.task_always_eager = True
    yield app
    app.close()


def test_a_celery_task(celery: Celery) -> None:
    @celery.task
    @occupies("statistics:{month}")
    def statistics(month: str) -> list[str]:
        return held()

    assert statistics.delay("may").get() == ["statistics:may"]
    assert statistics.apply_async(kwargs={"month": "june"}).get() == ["statistics:june"]


def test_a_name_without_its_argument_is_said_at_once() -> None:
    with pytest.raises(InvalidArgument, match=r"mentions \{day\}"):

        @occupies("report:{day}")
        def report(date: datetime.date) -> None: ...


def rows_of(table: int) -> Iterator[int]:
    yield table


def test_a_generator_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="generator"):
        occupies("rows")(rows_of)


def test_a_coroutine_callable_is_awaited_under_the_lock() -> None:
    class Counter:
        async def __call__(self) -> list[str]:
            return [each.name for each in await alocks.claims()]

    assert async_to_sync(occupies("counter")(functools.partial(Counter())))() == ["counter"]


def test_a_result_that_has_not_run_yet_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="returned a generator"):
        occupies("rows")(lambda: rows_of(1))()
    assert held() == []


@pytest.mark.parametrize("name", ["", None, "report:{"])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(InvalidArgument):
        occupies(name)(print)
