# ruff: noqa: E402 - Django is set up first
"""A site for real servers, `served_site:application`, and for a real worker of Celery, `served_site:worker`."""

import asyncio
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from store.counting import connect

connect()

from celery import Celery
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from store.shelf.models import Item

from interlock.django import occupy

FOLDER = os.environ.get("INTERLOCK_TEST_FOLDER", "")


async def add(request: HttpRequest) -> HttpResponse:
    """Read, let others run, add one, write the whole row."""
    async with occupy(Item, pk=1, timeout=60) as item:
        await asyncio.sleep(0)
        item.count += 1
        await item.asave()
    return HttpResponse("added")


urlpatterns = [path("add", add)]
settings.ROOT_URLCONF = __name__
settings.ALLOWED_HOSTS = ["*"]
settings.MIDDLEWARE = []
application = get_asgi_application()

worker = Celery(
    "served",
    broker="filesystem://",
    broker_transport_options={"data_folder_in": FOLDER, "data_folder_out": FOLDER, "control_folder": FOLDER},
    set_as_current=False,
)


@worker.task(name="add_one")
def add_one() -> None:
    """The same, in a process of the worker's pool."""
    with occupy(Item, pk=1, timeout=60) as item:
        item.count += 1
        item.save()
