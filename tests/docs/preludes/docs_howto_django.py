from typing import TYPE_CHECKING

from tests.docs.django_site import make_site

if TYPE_CHECKING:  # names that the page or the test runner defines
    from typing import Any

    from tests.docs.run_page import FOLDER

    Book: Any
    book: Any

globals().update(make_site(FOLDER))

from celery import shared_task
from django.test import TestCase
from django.views.generic import UpdateView

ADDRESSES = {"./manage.py report": "./manage.py version"}


def borrow(book: object) -> None:
    pass


def check() -> None:
    assert Book.objects.get(pk=book.pk).status == "free"
