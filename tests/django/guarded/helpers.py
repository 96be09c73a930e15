"""Helpers of the tests of guarded models: record statements, run threads at once, roll back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, models, transaction
from django.db.models.signals import pre_save
from django.test.utils import CaptureQueriesContext
from guarded.library.models import Book

from interlock.django.guarded import StaleObject


@contextmanager
def statements(using: str = "default") -> Iterator[list[str]]:
    """Collect the SQL that is sent, except the statements that begin and end transactions."""
    found: list[str] = []
    with CaptureQueriesContext(connections[using]) as captured:
        yield found
    words = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK", "SET ")
    found.extend(each["sql"] for each in captured if not each["sql"].startswith(words))


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Run functions at once, each in a thread with connections of its own; return their answers or exceptions."""
    answers: list[Any] = [None] * len(functions)
    start = threading.Barrier(len(functions))

    def run(number: int, function: Callable[[], Any]) -> None:
        try:
            start.wait()
            answers[number] = function()
        except Exception as error:
            answers[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return answers


class Undo(Exception):
    """Raised to leave a block and roll it back."""


@contextmanager
def in_atomic() -> Iterator[None]:
    """A transaction, or a savepoint in the one around it, that is rolled back."""
    with pytest.raises(Undo), transaction.atomic():
        yield
        raise Undo


@contextmanager
def in_savepoint() -> Iterator[None]:
    """A savepoint that is rolled back, in a transaction that is not."""
    with transaction.atomic():
        Book.objects.exists()
        with in_atomic():
            yield


def save(instance: Any, **values: Any) -> None:
    """Set fields of an instance, and save it."""
    for field, value in values.items():
        setattr(instance, field, value)
    instance.save()


@contextmanager
def before_saves(receiver: Callable[..., object], model: type[models.Model] = Book) -> Iterator[None]:
    """Let a function be called before each save of a book, or of another model, in the block."""
    pre_save.connect(receiver, sender=model)
    try:
        yield
    finally:
        pre_save.disconnect(receiver, sender=model)


def sql_of(function: Callable[..., object], *args: Any, **kwargs: Any) -> list[str]:
    """Call a function; return the SQL that it sends, except the statements that begin and end transactions."""
    with statements() as sql:
        function(*args, **kwargs)
    return sql


def refused(function: Callable[..., object], *args: Any, **kwargs: Any) -> StaleObject:
    """Call a function, which raises StaleObject; return that."""
    with pytest.raises(StaleObject) as caught:
        function(*args, **kwargs)
    return caught.value
