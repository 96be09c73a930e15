"""A small library for each test, and somebody of the staff."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from rest_framework.test import APITestCase

from catalogue.models import Author, Book, Copy, Reader
from interlock.django.testing import LocksMixin


def under(*protections: str) -> Callable[[Any], Any]:
    """Return a decorator that drops a test, or a class of tests, under any other protection than these."""
    return lambda test: test if settings.PROTECTION in protections else None


class LibraryTest(LocksMixin, APITestCase):
    """A book with two copies, and three readers; the client is staff."""

    staff: User
    book: Book
    first: Copy
    second: Copy
    ana: Reader
    ben: Reader
    eve: Reader

    @classmethod
    def setUpTestData(cls) -> None:
        """Make them."""
        cls.staff = User.objects.create_superuser("librarian")
        author = Author.objects.create(name="Jane Austen")
        cls.book = Book.objects.create(title="Emma", author=author, year=1815)
        cls.first, cls.second = (
            Copy.objects.create(book=cls.book, number=number, shelf="A") for number in ("0001-1", "0001-2")
        )
        cls.ana, cls.ben, cls.eve = (
            Reader.objects.create(card=f"R{place}", name=name) for place, name in enumerate(("Ana", "Ben", "Eve"))
        )

    def setUp(self) -> None:
        """Log in."""
        super().setUp()
        self.client.force_login(self.staff)

    def borrow(self, copy: Copy, reader: Reader) -> Any:
        """Return the API's answer to a reader who borrows."""
        return self.client.post(f"/api/copies/{copy.pk}/borrow/", {"reader": reader.pk})

    def give_back(self, copy: Copy) -> Any:
        """Return the API's answer to a reader who gives back."""
        return self.client.post(f"/api/copies/{copy.pk}/return/")

    def reserve(self, reader: Reader) -> Any:
        """Return the API's answer to a reader who reserves the book."""
        return self.client.post(f"/api/books/{self.book.pk}/reserve/", {"reader": reader.pk})

    def now(self) -> Book:
        """Return the book as it is in the database."""
        return Book.objects.get(pk=self.book.pk)
