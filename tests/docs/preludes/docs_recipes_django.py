from typing import TYPE_CHECKING

from tests.docs.django_site import make_site

if TYPE_CHECKING:  # names that the page or the test runner defines
    from typing import Any

    from tests.docs.run_page import FOLDER

    Book: Any
    book: Any

globals().update(make_site(FOLDER))

from django.db import transaction


def both_read() -> "tuple[Any, Any]":
    Book.objects.update(copies=3, lent=2)
    return Book.objects.get(pk=book.pk), Book.objects.get(pk=book.pk)


ADDRESSES = {
    "# copies = 3, lent = 2;": "anna, ben = both_read()  #",
    "verify(book)": "book.refresh_from_db(); verify(book)",
}


def check() -> None:
    found = Book.objects.get(pk=book.pk)
    assert (found.copies, found.lent) == (2, 4)  # the skew, and what `verify` let through after it
