"""Real threads, each with its own connection: no update is lost, in any order."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from guarded.helpers import in_threads
from guarded.library.models import Book, Letter, Magazine

from interlock.django.guarded import StaleObject

ROUNDS = 10
THREADS = 4


def often(change: Callable[[int], None], threads: int = THREADS, rounds: int = ROUNDS) -> list[int]:
    """Make a change again and again in several threads at once; read again when it is refused.

    Returns:
        How often each thread was refused.
    """

    def worker(number: int) -> Callable[[], int]:
        def run() -> int:
            refused = 0
            for _ in range(rounds):
                while True:
                    try:
                        change(number)
                        break
                    except StaleObject:
                        refused += 1
            return refused

        return run

    answers = in_threads(*(worker(number) for number in range(threads)))
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def test_of_two_that_write_one_field_one_is_refused() -> None:
    for _ in range(ROUNDS):
        key = Book.objects.create(name="naem").pk
        both_have_read = threading.Barrier(2)

        def change(key: int, barrier: threading.Barrier, name: str) -> str:
            mine = Book.objects.get(pk=key)
            mine.name = name
            barrier.wait()
            mine.save()
            return name

        answers = in_threads(
            lambda: change(key, both_have_read, "one"),  # noqa: B023
            lambda: change(key, both_have_read, "two"),  # noqa: B023
        )
        saved = [answer for answer in answers if not isinstance(answer, StaleObject)]
        assert [Book.objects.get(pk=key).name] == saved


def test_a_column_that_is_compared_in_python_loses_nothing() -> None:
    key = Letter.objects.create(secret="0").pk

    def change(number: int) -> None:
        mine = Letter.objects.get(pk=key)
        mine.secret = str(int(mine.secret) + 1)
        mine.save()

    often(change, rounds=10)
    assert Letter.objects.get(pk=key).secret == str(THREADS * 10)


def test_two_tables_of_one_object_lose_nothing() -> None:
    key = Magazine.objects.create(title="Time").pk

    def change(number: int) -> None:
        mine = Magazine.objects.get(pk=key)
        mine.pages += 1
        mine.issue += 1
        mine.save()

    often(change, rounds=10)
    found = Magazine.objects.get(pk=key)
    assert (found.pages, found.issue) == (THREADS * 10, THREADS * 10 + 1)


def test_a_save_waits_for_a_transaction_that_writes_the_row_and_then_is_refused() -> None:
    key = Book.objects.create(name="naem").pk
    mine = Book.objects.get(pk=key)
    written, done = threading.Event(), threading.Event()

    def theirs() -> None:
        with transaction.atomic():
            book = Book.objects.get(pk=key)
            book.name = "theirs"
            book.save()
            written.set()
            assert not done.wait(0.2)

    def late() -> None:
        assert written.wait(20)
        mine.name = "mine"
        try:
            mine.save()
        finally:
            done.set()

    answers = in_threads(theirs, late)
    assert answers[0] is None
    assert isinstance(answers[1], StaleObject)
    assert answers[1].fields["name"].theirs == "theirs"


if connection.vendor == "mysql":

    def test_with_repeatable_reads_it_sees_what_the_others_have_committed() -> None:
        """The reads of such a transaction see an old snapshot; the comparison does not."""
        key = Book.objects.create(name="naem").pk
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        try:
            with transaction.atomic():
                mine = Book.objects.get(pk=key)
                in_threads(lambda: Book.objects.filter(pk=key).update(name="theirs"))
                mine.name = "mine"
                with pytest.raises(StaleObject) as caught:
                    mine.save()
                assert caught.value.fields["name"].theirs == "theirs"
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
