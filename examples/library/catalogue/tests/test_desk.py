"""The rules of the lending desk, by the API; they hold under each protection while nobody else is there."""

from collections.abc import Callable
from typing import Any

from catalogue.models import Book, Reservation
from catalogue.tests.base import LibraryTest


class LendingTest(LibraryTest):
    """Loans."""

    def test_a_lent_copy_is_not_lent_again(self) -> None:
        assert self.borrow(self.first, self.ana).status_code == 201
        refused = self.borrow(self.first, self.ben)
        assert (refused.status_code, refused.json()) == (409, {"detail": "Copy 0001-1 is lent already."})
        assert self.first.loans.count() == 1

    def test_a_copy_that_is_back_is_lent_again(self) -> None:
        self.borrow(self.first, self.ana)
        assert self.give_back(self.first).status_code == 200
        assert self.borrow(self.first, self.ben).status_code == 201
        assert [loan.reader for loan in self.first.loans.open()] == [self.ben]

    def test_a_copy_on_the_shelf_can_not_be_returned(self) -> None:
        assert self.give_back(self.first).status_code == 409

    def test_a_book_is_lent_while_all_its_copies_are(self) -> None:
        statuses = []
        steps: tuple[Callable[[], Any], ...] = (
            lambda: self.borrow(self.first, self.ana),
            lambda: self.borrow(self.second, self.ben),
            lambda: self.give_back(self.first),
        )
        for step in steps:
            step()
            statuses.append(self.now().status)
        assert statuses == [Book.Status.FREE, Book.Status.LENT, Book.Status.FREE]

    def test_each_loan_is_counted(self) -> None:
        self.borrow(self.first, self.ana)
        self.borrow(self.second, self.ana)
        assert self.now().times_lent == 2

    def test_an_unknown_reader_borrows_nothing(self) -> None:
        answer = self.client.post(f"/api/copies/{self.first.pk}/borrow/", {"reader": 0})
        assert answer.status_code == 400
        assert not self.first.loans.exists()


class ReservationTest(LibraryTest):
    """Reservations."""

    def test_a_book_has_no_more_reservations_than_copies(self) -> None:
        answers = [self.reserve(reader).status_code for reader in (self.ana, self.ben, self.eve)]
        assert answers == [201, 201, 409]

    def test_a_reader_reserves_a_book_once(self) -> None:
        assert [self.reserve(self.ana).status_code for _ in range(2)] == [201, 409]

    def test_a_copy_is_kept_for_who_has_reserved(self) -> None:
        self.borrow(self.first, self.eve)
        self.reserve(self.ana)
        assert self.borrow(self.second, self.ben).status_code == 409
        assert self.borrow(self.second, self.ana).status_code == 201
        assert not Reservation.objects.open().exists()

    def test_a_cancelled_reservation_makes_room(self) -> None:
        first = self.reserve(self.ana).json()["id"]
        self.reserve(self.ben)
        ended = [self.client.post(f"/api/reservations/{first}/cancel/").json()["ended_at"] for _ in range(2)]
        assert ended[0] == ended[1]
        assert self.reserve(self.eve).status_code == 201


class CatalogueTest(LibraryTest):
    """Books, and who may do what."""

    def test_a_rename_changes_the_title_only(self) -> None:
        answer = self.client.post(f"/api/books/{self.book.pk}/rename/", {"title": "Emma!"})
        assert (answer.status_code, answer.json()) == (200, {"title": "Emma!"})
        assert (self.now().title, self.now().year) == ("Emma!", 1815)

    def test_books_and_copies_are_added(self) -> None:
        added = self.client.post("/api/books/", {"title": "Persuasion", "author": self.book.author_id, "year": 1817})
        assert added.status_code == 201
        copy = self.client.post("/api/copies/", {"book": added.json()["id"], "number": "0002-1", "shelf": "A"})
        assert copy.status_code == 201
        assert self.client.get(f"/api/books/{added.json()['id']}/").json()["copies"] == 1

    def test_lists_show_what_is_of_one_object_and_not_over(self) -> None:
        self.borrow(self.first, self.ana)
        self.borrow(self.second, self.ana)
        self.give_back(self.first)

        def count(query: str) -> int:
            return int(self.client.get(f"/api/loans/{query}").json()["count"])

        numbers = [
            count(query) for query in ("", "?open=1", f"?copy={self.first.pk}", f"?open=1&copy={self.first.pk}")
        ]
        assert numbers == [2, 1, 1, 0]

    def test_a_list_of_what_is_of_nothing_is_refused(self) -> None:
        for given in ("x", "", "0", "9" * 40):
            with self.subTest(given):
                assert self.client.get("/api/loans/", {"copy": given}).status_code == 400

    def test_everybody_sees_books_but_not_who_has_them(self) -> None:
        self.client.logout()
        seen = {
            path: self.client.get(f"/api/{path}/").status_code for path in ("books", "copies", "readers", "loans")
        }
        assert seen == {"books": 200, "copies": 200, "readers": 403, "loans": 403}

    def test_only_staff_lends(self) -> None:
        self.client.logout()
        assert self.borrow(self.first, self.ana).status_code == 403
        assert not self.first.loans.exists()

    def test_the_api_can_be_browsed(self) -> None:
        page = self.client.get(f"/api/copies/{self.first.pk}/borrow/", HTTP_ACCEPT="text/html")
        self.assertContains(page, "Borrow", status_code=405)
