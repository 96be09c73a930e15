"""A guarded instance whose save was rolled back, in any way, compares with the values from before it."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from django.db import connection, transaction
from django.db.models import F
from guarded.helpers import Undo, in_atomic, in_savepoint, refused, save, sql_of
from guarded.library.models import Book, Magazine

from interlock.django.guarded import changes

Undone = Callable[[], AbstractContextManager[None]]


@contextmanager
def in_savepoint_released() -> Iterator[None]:
    with transaction.atomic(), in_atomic(), transaction.atomic():
        yield


@contextmanager
def in_inner_without_savepoint() -> Iterator[None]:
    with pytest.raises(Undo), transaction.atomic(), transaction.atomic(savepoint=False):
        yield
        raise Undo


@contextmanager
def by_set_rollback() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@contextmanager
def by_savepoint_by_hand() -> Iterator[None]:
    with transaction.atomic():
        savepoint = connection.savepoint()
        yield
        connection.savepoint_rollback(savepoint)


@contextmanager
def by_close() -> Iterator[None]:
    with transaction.atomic():
        yield
        connection.close()


@contextmanager
def by_hand() -> Iterator[None]:
    transaction.set_autocommit(False)
    try:
        yield
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)


UNDOINGS = [
    in_atomic, in_savepoint, in_savepoint_released, in_inner_without_savepoint, by_set_rollback, by_savepoint_by_hand,
    by_close, by_hand,
]  # fmt: skip


@pytest.fixture(params=UNDOINGS, ids=lambda each: each.__name__)
def undone(request: pytest.FixtureRequest) -> Undone:
    """A block in a transaction that is rolled back."""
    found: Undone = request.param
    return found


class TestUndone:
    def test_what_was_undone_is_written_again(self, book: Book, undone: Undone) -> None:
        with undone():
            save(book, name="name")
        assert Book.objects.get().name == "naem"
        book.save()
        assert Book.objects.get().name == "name"
        assert "name" not in sql_of(save, book, status="free")[0].partition("SET")[2].partition("WHERE")[0]

    def test_what_was_undone_is_compared_with_what_was_read_before(self, book: Book, undone: Undone) -> None:
        with undone():
            for name in ("one", "two"):
                save(book, name=name)
        Book.objects.update(name="theirs")
        conflict = refused(book.save).fields["name"]
        assert (conflict.original, conflict.mine, conflict.theirs) == ("naem", "two", "theirs")

    def test_what_was_saved_before_stays(self, book: Book, undone: Undone) -> None:
        save(book, name="before")

        with undone():
            save(book, status="free")
        assert changes(book) == {"status": ("use", "free")}

    def test_an_insert_that_was_undone_is_done_again(self, undone: Undone) -> None:
        made = Book(name="made")
        with undone():
            made.save()
        save(made, status="free")
        assert Book.objects.get().status == "free"

    def test_an_expression_that_was_undone_is_applied_again(self, book: Book, undone: Undone) -> None:
        with undone():
            save(book, copies=F("copies") + 1)
        if "copies" in vars(book):  # Django 6 drops it if the database can't return computed values
            book.save()
            assert Book.objects.get().copies == 2

    def test_a_list_that_was_undone_is_written_again(self, book: Book, undone: Undone) -> None:
        with undone():
            book.tags.append("blue")
            book.save()
        book.save()
        assert Book.objects.get().tags == ["red", "blue"]

    def test_a_refresh_in_between_changes_nothing_of_that(self, book: Book, undone: Undone) -> None:
        with undone():
            save(book, name="name")
            book.refresh_from_db()
        book.save()
        assert Book.objects.get().name == "name"

    def test_copies_know_it_too(self, book: Book, undone: Undone) -> None:
        copies = []

        with undone():
            save(book, name="name")
            copies.extend([copy.copy(book), copy.deepcopy(book)])
        for each in copies:
            assert changes(each) == {"name": ("naem", "name")}

    def test_both_tables_of_an_inherited_model_are_written_again(self, undone: Undone) -> None:
        magazine = Magazine.objects.create(title="Time")

        with undone():
            save(magazine, title="Life", issue=7)
        magazine.save()
        found = Magazine.objects.get()
        assert (found.title, found.issue) == ("Life", 7)
