"""What happens when somebody else comes between reading and writing; under each protection.

`think` stands between the two, so each test puts the others' deed there.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.urls import reverse

from catalogue import lending
from catalogue.models import Book, Loan, Reservation
from catalogue.tests.base import LibraryTest, under
from interlock.django import locks
from interlock.django.testing import name_of


@contextmanager
def meanwhile(where: str, deed: Callable[[], Any]) -> Iterator[None]:
    """Do something once, between reading and writing."""
    deeds = iter([deed])

    def think() -> None:
        next(deeds, lambda: None)()

    with patch(f"catalogue.{where}.think", think):
        yield


class MeanwhileTest(LibraryTest):
    """The two races of the original scheme, step by step."""

    def rename(self, title: str) -> Any:
        """Return the API's answer to a rename."""
        return self.client.post(f"/api/books/{self.book.pk}/rename/", {"title": title})

    def lend_behind(self) -> None:
        """Lend a copy as another process would, which knows nothing of this one."""
        Loan.objects.create(copy=self.first, reader=self.eve)
        Book.objects.filter(pk=self.book.pk).update(status=Book.Status.LENT, times_lent=5)

    @under("none")
    def test_without_protection_a_rename_undoes_what_was_lent_meanwhile(self) -> None:
        with meanwhile("api", self.lend_behind):
            assert self.rename("Emma!").status_code == 200
        assert (self.now().title, self.now().status, self.now().times_lent) == ("Emma!", "free", 0)

    @under("guarded", "occupy")
    def test_guarded_a_rename_keeps_what_was_lent_meanwhile(self) -> None:
        with meanwhile("api", self.lend_behind):
            assert self.rename("Emma!").status_code == 200
        assert (self.now().title, self.now().status, self.now().times_lent) == ("Emma!", "lent", 5)

    @under("guarded", "occupy")
    def test_of_two_renames_the_second_is_told_of_the_first(self) -> None:
        with meanwhile("api", lambda: Book.objects.filter(pk=self.book.pk).update(title="Emma?")):
            refused = self.rename("Emma!")
        conflict = {"original": "Emma", "yours": "Emma!", "theirs": "Emma?"}
        assert (refused.status_code, refused.json()["fields"]) == (409, {"title": conflict})
        assert self.now().title == "Emma?"

    @under("guarded", "occupy")
    def test_two_who_lend_count_both(self) -> None:
        with meanwhile("lending", lambda: Book.objects.filter(pk=self.book.pk).update(times_lent=5)):
            self.borrow(self.first, self.ana)
        assert self.now().times_lent == 6

    @under("none", "guarded")
    def test_without_a_lock_one_copy_is_lent_twice(self) -> None:
        with meanwhile("lending", lambda: self.borrow(self.first, self.ben)):
            assert self.borrow(self.first, self.ana).status_code == 201
        assert self.first.loans.open().count() == 2

    @under("none", "guarded")
    def test_without_a_lock_there_are_more_reservations_than_copies(self) -> None:
        self.reserve(self.eve)
        with meanwhile("lending", lambda: self.reserve(self.ben)):
            assert self.reserve(self.ana).status_code == 201
        assert Reservation.objects.open().count() == 3


@under("occupy")
@patch.object(lending, "WAIT", 0.0)
class OccupiedTest(LibraryTest):
    """Whoever decides by more than one row has the book for itself."""

    def setUp(self) -> None:
        """Have another thread at hand."""
        super().setUp()
        self.others = self.enterContext(ThreadPoolExecutor(1))

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Let somebody else occupy the book."""
        grant = self.others.submit(locks.lock(name_of(self.book)).acquire, timeout=0).result()
        try:
            yield
        finally:
            self.others.submit(grant.release).result()

    def test_the_book_is_occupied_while_a_copy_is_lent_and_free_afterwards(self) -> None:
        with meanwhile("lending", lambda: self.assertHeld(self.book)):
            assert self.borrow(self.first, self.ana).status_code == 201
        self.assertFree(self.book)

    def test_the_book_is_free_after_a_refusal(self) -> None:
        self.give_back(self.first)
        self.assertFree(self.book)

    def test_who_finds_the_book_occupied_is_told_to_come_again(self) -> None:
        with self.busy():
            answers = [self.borrow(self.first, self.ana), self.reserve(self.ana), self.give_back(self.first)]
        for answer in answers:
            assert (answer.status_code, answer.headers["Retry-After"]) == (423, "1")
        assert not Loan.objects.exists()
        assert not Reservation.objects.exists()

    def test_a_page_tells_that_somebody_else_is_busy(self) -> None:
        with self.busy():
            page = self.client.post(reverse("borrow", args=[self.first.pk]), {"reader": self.ana.pk}, follow=True)
        self.assertContains(page, "Somebody else is busy with this book.")

    def test_what_was_read_before_the_lock_is_read_again(self) -> None:
        Book.objects.filter(pk=self.book.pk).update(times_lent=7)
        lending.borrow(self.first, self.ana)  # knows the book with 0
        assert self.now().times_lent == 8
