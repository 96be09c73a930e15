"""Real threads, each with its own connection: no update is lost, in any order."""

import threading
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, transaction
from guarded.helpers import in_threads, refused, save
from guarded.library.models import Book, Letter, Magazine

from interlock.django.guarded import StaleObject

ROUNDS = 10
THREADS = 4


@pytest.mark.parametrize(
    ("model", "fields"),
    [(Letter, {"secret": "0"}), (Magazine, {"pages": 0, "issue": 0})],
    ids=["a column that is compared in Python", "two tables"],
)
def test_threads_lose_no_update(model: Any, fields: dict[str, Any]) -> None:
    model.objects.create(**fields)

    def add_one() -> None:
        mine = model.objects.get()
        for name, begun in fields.items():
            setattr(mine, name, type(begun)(int(getattr(mine, name)) + 1))
        mine.save()

    def often() -> int:
        done = 0
        while done < ROUNDS:
            with suppress(StaleObject):
                add_one()
                done += 1
        return done

    assert in_threads(*[often] * THREADS) == [ROUNDS] * THREADS
    found = model.objects.get()
    assert {int(getattr(found, name)) for name in fields} == {THREADS * ROUNDS}


def test_a_save_waits_for_the_rows_writer_and_is_refused() -> None:
    key = Book.objects.create(name="naem").pk
    mine = Book.objects.get(pk=key)
    written, done = threading.Event(), threading.Event()

    def theirs() -> None:
        with transaction.atomic():
            book = Book.objects.get(pk=key)
            save(book, name="theirs")
            written.set()
            assert not done.wait(0.2)

    def late() -> None:
        assert written.wait(20)
        try:
            save(mine, name="mine")
        finally:
            done.set()

    answers = in_threads(theirs, late)
    assert answers[0] is None
    assert isinstance(answers[1], StaleObject)
    assert answers[1].fields["name"].theirs == "theirs"


if connection.vendor == "mysql":

    def test_with_repeatable_reads_a_save_sees_committed_changes() -> None:
        """The reads of such a transaction see an old snapshot; the comparison does not."""
        key = Book.objects.create(name="naem").pk
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        try:
            with transaction.atomic():
                mine = Book.objects.get(pk=key)
                in_threads(lambda: Book.objects.filter(pk=key).update(name="theirs"))
                assert refused(save, mine, name="mine").fields["name"].theirs == "theirs"
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
