from typing import TYPE_CHECKING

import interlock
from tests.docs.django_site import make_site

if TYPE_CHECKING:  # names that the page or the test runner defines
    from typing import Any

    from tests.docs.run_page import FOLDER

    Account: Any

globals().update(make_site(FOLDER))
locks = interlock.connect()

from django.contrib import admin

ADDRESSES = {"class BookForm(": "Book = type(book)\nclass BookForm("}  # the Book of a block above has no fields


def check() -> None:
    assert Account.objects.get(pk=1).balance == 5
