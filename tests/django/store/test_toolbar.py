"""The panel of django-debug-toolbar shows the claims of a request, sync and async."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path
from store.shelf.models import Item

from interlock import LockTimeout
from interlock.django import alocks, locks, occupy

PAGE = "<html><body>a page</body></html>"


def three(request: HttpRequest) -> HttpResponse:
    """Make a claim that is released, one that is not obtained, and one that is held at the end."""
    with occupy(Item, pk=1):
        pass
    locks.lock("taken").acquire(timeout=0)
    with pytest.raises(LockTimeout), locks.lock("taken", timeout=0.01):
        pass
    request.grant = locks.lock("<kept>").acquire()  # type: ignore[attr-defined]
    kept.append(request.grant)  # type: ignore[attr-defined]
    return HttpResponse(PAGE)


def lost(request: HttpRequest) -> HttpResponse:
    """Make a claim that is evicted while it is held, and two that are acquired together."""
    grant = locks.lock("evicted").acquire()
    locks.evict("evicted")
    assert not grant.renew()
    assert not grant.release()
    with locks.all("one", "two"):
        pass
    return HttpResponse(PAGE)


def none(request: HttpRequest) -> HttpResponse:
    """Make no claim."""
    return HttpResponse(PAGE)


async def from_task(request: HttpRequest) -> HttpResponse:
    """Make a claim in a task."""
    async with alocks.lock("async"):
        pass
    await alocks.close()
    return HttpResponse(PAGE)


kept: list[Any] = []
urlpatterns = [
    path("three", three),
    path("lost", lost),
    path("none", none),
    path("task", from_task),
    path("__debug__/", include("debug_toolbar.urls")),
]


@pytest.fixture(autouse=True)
def toolbar(clean: None) -> Iterator[None]:
    with override_settings(
        MIDDLEWARE=["debug_toolbar.middleware.DebugToolbarMiddleware"],
        ROOT_URLCONF=__name__,
        DEBUG_TOOLBAR_PANELS=["interlock.django.toolbar.ClaimsPanel"],
        DEBUG_TOOLBAR_CONFIG={"SHOW_TOOLBAR_CALLBACK": lambda request: True, "RENDER_PANELS": True},
    ):
        yield
        while kept:
            kept.pop().release()


def rows_of(page: str) -> list[tuple[str, ...]]:
    """Return the names and outcomes in the panel's table, and check that the times are numbers."""
    found = []
    for row in re.findall(r"<tr>\s*(<td>.*?)</tr>", page, re.DOTALL):
        name, waited, held, outcome = (re.sub("<.*?>", "", each) for each in re.findall(r"<td>(.*?)</td>", row))
        assert float(waited) >= 0
        assert float(held) >= 0
        found.append((name, outcome))
    return found


def test_it_shows_what_became_of_each_claim() -> None:
    Item.objects.create(pk=1, name="Emma")
    with locks.lock("taken"):
        page = Client().get("/three").content.decode()
    assert rows_of(page) == [
        ("shelf.item:1", "released"),
        ("taken", "not obtained"),
        ("taken", "not obtained"),
        ("&lt;kept&gt;", "held"),
    ]
    assert "4 claims" in page


def test_the_panel_shows_lost_claims_and_several_at_once() -> None:
    assert rows_of(Client().get("/lost").content.decode()) == [
        ("evicted", "lost"),
        ("one", "released"),
        ("two", "released"),
    ]


def test_a_request_that_takes_no_lock_is_told_so() -> None:
    page = Client().get("/none").content.decode()
    assert rows_of(page) == []
    assert "This request took no lock." in page
    assert "0 claims" in page


def test_it_shows_claims_of_an_async_view() -> None:
    page = asyncio.run(AsyncClient().get("/task")).content.decode()
    assert rows_of(page) == [("async", "released")]


def test_what_is_taken_beside_a_request_is_not_shown() -> None:
    with locks.lock("beside"):
        assert rows_of(Client().get("/none").content.decode()) == []
