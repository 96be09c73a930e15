"""A guarded instance in transactions: it forgets a save that was rolled back, and never breaks a transaction."""

import pickle
import unittest
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import TestCase
from guarded.helpers import before_saves, in_atomic, in_savepoint, refused, save
from guarded.library.models import Book, Magazine

from interlock.django.guarded import changes


class TestCommitted:
    def test_an_undo_to_a_savepoint_leaves_what_was_before_it(self, book: Book) -> None:
        with transaction.atomic():
            save(book, name="name")
            with in_atomic():
                save(book, status="free")
            save(book, notes="after")
        found = Book.objects.get()
        assert (found.name, found.status, found.notes) == ("name", "free", "after")

    def test_a_savepoint_that_was_kept_is_kept(self, book: Book) -> None:
        with transaction.atomic():
            with transaction.atomic():
                save(book, name="name")
            with in_atomic():
                pass
        assert changes(book) == {}

    def test_a_commit_that_fails_undoes(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        from django.db import OperationalError

        def no_commit() -> None:
            raise OperationalError("the server has gone")

        with pytest.raises(OperationalError), transaction.atomic():
            save(book, name="name")
            monkeypatch.setattr(connection, "_commit", no_commit)
        monkeypatch.undo()
        assert Book.objects.get().name == "naem"
        assert changes(book) == {"name": ("naem", "name")}

    def test_a_commit_by_hand_commits(self, book: Book) -> None:
        transaction.set_autocommit(False)
        try:
            save(book, name="name")
            transaction.commit()
            save(book, status="free")
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)
        assert changes(book) == {"status": ("use", "free")}

    @pytest.mark.parametrize("undone_in", [in_atomic, in_savepoint], ids=["a transaction", "a savepoint"])
    def test_a_pickle_made_after_a_rollback_knows_what_was_undone(
        self, book: Book, undone_in: Callable[[], AbstractContextManager[None]]
    ) -> None:
        with undone_in():
            save(book, name="name")
        other = pickle.loads(pickle.dumps(book))
        assert changes(other) == {"name": ("naem", "name")}
        other.save()
        assert Book.objects.get().name == "name"


class TestRefusedInTransactions:
    def test_the_transaction_can_be_used_on(self, mine: Book) -> None:
        Book.objects.update(name="theirs")
        mine.name = "mine"
        with transaction.atomic():
            Book.objects.create(name="before")
            refused(mine.save)
            mine.refresh_from_db()
            save(mine, name="mine")
        assert sorted(Book.objects.values_list("name", flat=True)) == ["before", "mine"]

    def test_a_half_done_save_of_a_handler_can_not_be_committed(self, book: Book) -> None:
        """A refusal raised in a signal handler is of another save, which may have written one of its tables."""
        magazine = Magazine.objects.create(title="old", month="May")
        Magazine.objects.update(month="theirs")

        def also(**_: Any) -> None:
            save(magazine, title="half", month="mine")

        with before_saves(also), transaction.atomic():
            refused(save, book, name="mine")
        assert Magazine.objects.get().title == "old"

    def test_a_transaction_that_had_failed_before_stays_so(self, mine: Book) -> None:
        Book.objects.update(name="theirs")

        def fail(**_: Any) -> None:
            transaction.set_rollback(True)

        with transaction.atomic():
            Book.objects.create(name="before")
            with before_saves(fail), pytest.raises(DatabaseError):
                save(mine, name="mine")
        assert Book.objects.get().name == "theirs"


class TestManySavepoints:
    """The memory that savepoints take does not grow with their number."""

    def test_a_released_one_is_undone_with_what_is_around_it(self, book: Book) -> None:
        with transaction.atomic():
            save(book, copies=2)
            with in_atomic():
                for number in (3, 4):
                    with transaction.atomic():
                        save(book, copies=number)
            assert changes(book) == {"copies": (2, 4)}
        assert changes(book) == {"copies": (2, 4)}


class TestDjangosTestCase:
    """Django's TestCase runs each test in a transaction that it rolls back."""

    def test_no_commit_hooks_are_seen_by_who_counts_them(self) -> None:
        class Case(TestCase):
            def test(self) -> None:
                with self.captureOnCommitCallbacks(execute=True) as callbacks:
                    book = Book.objects.create(name="naem")
                    save(book, name="name")
                assert callbacks == []

        succeeds(Case)

    def test_changes_to_test_data_are_undone_for_the_next_test(self) -> None:
        class Case(TestCase):
            @classmethod
            def setUpTestData(cls) -> None:
                cls.book = Book.objects.create(name="naem")
                cls.book.status = "free"
                cls.book.save()

            def change(self) -> None:
                assert changes(self.book) == {}
                self.book.name = "name"
                self.book.save()
                assert Book.objects.get().name == "name"

            test_one = test_two = change

        succeeds(Case)


def succeeds(case: type[TestCase]) -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun > 0
    assert not result.errors + result.failures
