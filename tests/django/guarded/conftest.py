"""Fixtures of the tests of guarded models."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connections, transaction
from guarded.helpers import before_saves
from guarded.library.models import Author, Book
from store.table_changes import forget_lines


@pytest.fixture(autouse=True)
def clean(databases: None) -> Iterator[None]:
    """Leave the tables of both databases empty."""
    yield
    apps_of_tests = [apps.get_app_config(label) for label in ("library", "admin", "interlock")]
    models = [model for config in apps_of_tests for model in config.get_models() if model._meta.managed]
    models += [User.user_permissions.through, User]
    for alias in ("default", "other"):
        # References are checked at the end of the transaction, or not at all.
        with transaction.atomic(using=alias), connections[alias].constraint_checks_disabled():
            for model in models:
                model._base_manager.using(alias)._raw_delete(alias)
    forget_lines()


@pytest.fixture
def book() -> Book:
    """A book with an author, a tag, and a time that a page shows without its microseconds."""
    due = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
    return Book.objects.create(name="naem", tags=["red"], due=due, author=Author.objects.create(name="Ann"))


@pytest.fixture
def mine(book: Book) -> Book:
    """The book, as this user has read it."""
    return Book.objects.get(pk=book.pk)


@pytest.fixture
def meanwhile() -> Iterator[Callable[..., None]]:
    """Let another user change a book just before the next save of a book."""
    with ExitStack() as connected:

        def change(**values: Any) -> None:
            def theirs(instance: Book, **_: Any) -> None:
                connected.close()
                Book.objects.filter(pk=instance.pk).update(**values)

            connected.enter_context(before_saves(theirs))

        yield change
