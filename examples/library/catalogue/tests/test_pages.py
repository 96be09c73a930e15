"""The pages, the admin, and the seed data."""

import csv
from io import StringIO

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import TestCase, TransactionTestCase
from django.urls import reverse

from catalogue.models import Author, Book, Copy, Loan, Reader, Reservation
from catalogue.tests.base import LibraryTest


class PagesTest(LibraryTest):
    """What people see."""

    def test_a_search_finds_titles_and_authors(self) -> None:
        for query, found in (("emm", True), ("austen", True), ("tolstoy", False)):
            with self.subTest(query):
                assert bool(self.client.get("/", {"q": query}).context["page_obj"].object_list) == found

    def test_visitors_see_neither_buttons_nor_readers(self) -> None:
        self.borrow(self.first, self.ana)
        self.client.logout()
        page = self.client.get(self.book.get_absolute_url())
        self.assertContains(page, "lent")
        self.assertNotContains(page, "<button")
        self.assertNotContains(page, "Ana")

    def test_the_buttons_lend_and_take_back(self) -> None:
        lent = self.client.post(reverse("borrow", args=[self.first.pk]), {"reader": self.ana.pk}, follow=True)
        self.assertContains(lent, "0001-1 is lent to Ana.")
        self.assertContains(lent, "Return 0001-1")
        back = self.client.post(reverse("return", args=[self.first.pk]), follow=True)
        self.assertContains(back, "0001-1 is back.")

    def test_the_buttons_reserve_and_cancel(self) -> None:
        reserved = self.client.post(reverse("reserve", args=[self.book.pk]), {"reader": self.ana.pk}, follow=True)
        self.assertContains(reserved, "Reserved for Ana.")
        cancelled = self.client.post(reverse("cancel", args=[Reservation.objects.get().pk]), follow=True)
        self.assertContains(cancelled, "The reservation of Ana is cancelled.")
        assert not Reservation.objects.open().exists()

    def test_a_page_tells_what_the_rules_forbid(self) -> None:
        self.borrow(self.first, self.ana)
        page = self.client.post(reverse("borrow", args=[self.first.pk]), {"reader": self.ben.pk}, follow=True)
        self.assertContains(page, "is lent already")

    def test_a_reader_must_be_chosen(self) -> None:
        for given in ({}, {"reader": "x"}, {"reader": 0}):
            with self.subTest(given):
                answer = self.client.post(reverse("borrow", args=[self.first.pk]), given)
                assert answer.status_code == 404

    def test_only_staff_uses_the_buttons(self) -> None:
        self.client.logout()
        answer = self.client.post(reverse("borrow", args=[self.first.pk]), {"reader": self.ana.pk})
        assert reverse("admin:login") in answer.headers["Location"]
        assert not Loan.objects.exists()

    def test_a_link_lends_nothing(self) -> None:
        assert self.client.get(reverse("borrow", args=[self.first.pk])).status_code == 405

    def test_the_admin_has_all(self) -> None:
        self.borrow(self.first, self.ana)
        self.reserve(self.ben)
        for model in (Author, Book, Copy, Reader, Loan, Reservation):
            name = f"admin:catalogue_{model._meta.model_name}"
            for page in (
                reverse(f"{name}_changelist"),
                reverse(f"{name}_add"),
                reverse(f"{name}_change", args=[model.objects.all()[0].pk]),
            ):
                with self.subTest(page):
                    assert self.client.get(page).status_code == 200


class SeedTest(TestCase):
    """The seed data."""

    def test_the_file_has_some_hundred_books_once_each(self) -> None:
        with (settings.BASE / "books.csv").open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) > 300
        assert len({(row["title"], row["author"]) for row in rows}) == len(rows)
        for row in rows:
            assert [row[key] for key in row] == [row[key].strip() for key in ("title", "author", "year")]
            assert all(row.values())
            # So that nobody's rights are left: the youngest authors here have died more than 70 years ago.
            assert 1300 < int(row["year"]) < 1950, row

    def test_the_library_is_seeded_once(self) -> None:
        said = StringIO()
        for _ in range(2):
            call_command("seed", stdout=said)
        assert said.getvalue().count("books") == 1
        assert {book.copies.count() for book in Book.objects.all()[:50]} == {1, 2, 3}
        assert Reader.objects.count() >= 24

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with self.assertRaisesMessage(CommandError, "can't read nowhere.csv"):
            call_command("seed", "nowhere.csv")


class UserTest(TransactionTestCase):
    """The set-up, which is not done in a transaction."""

    databases = "__all__"

    def test_the_password_is_told_once(self) -> None:
        said = StringIO()
        for _ in range(2):
            call_command("setup", stdout=said)
        password = said.getvalue().split("password: ")[1].split()[0]
        assert get_user_model().objects.get().check_password(password)
        assert said.getvalue().count("password") == 1
