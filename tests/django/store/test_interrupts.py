"""An exception may come at any line, from a signal handler or a greenlet: no lock stays behind."""

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from store.shelf.models import Item

from interlock.client._sync.grants import Grant
from interlock.django import commit_checks, committing, locks, occupation, occupies, occupy, relied, rows
from interlock.django.testing import override_locks
from interlock.testing.waiting import eventually

OURS = {each.__file__ for each in (occupation, rows, relied, committing, commit_checks)}
EXIT: Any = inspect.unwrap(occupation.Occupation.__exit__)


class Interrupted(Exception):
    """As the soft time limit of Celery."""


@pytest.fixture(autouse=True)
def in_memory(clean: None) -> Iterator[None]:
    with override_locks():
        yield


@pytest.fixture
def item() -> Item:
    return Item.objects.create(name="Emma")


@contextmanager
def interrupts(comes_at: Callable[[Any], bool]) -> Iterator[None]:
    """Raise at the first line for which `comes_at(frame)` is true."""
    before = sys.gettrace()

    def trace(frame: Any, event: str, argument: object) -> Any:
        if event in ("call", "line") and comes_at(frame):
            sys.settrace(before)
            raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def interrupted_at(number: int, work: Callable[[], None]) -> bool:
    """Interrupt `work` at the line of ours with this number; False if it has not so many."""
    left = number

    def comes(frame: Any) -> bool:
        nonlocal left
        left -= frame.f_code.co_filename in OURS
        return left == 0

    try:
        with interrupts(comes):
            work()
    except Interrupted:
        return True
    return False


def leave_without_exit(occupied: Any) -> None:
    """Be interrupted when `__exit__` is entered, before its first line."""
    with pytest.raises(Interrupted), interrupts(lambda frame: frame.f_code is EXIT.__code__):
        with occupied:
            pass


def test_an_interrupt_at_any_line_leaves_no_row_occupied(item: Item) -> None:
    def work() -> None:
        with occupy(item):
            pass

    work()
    number = 1
    while interrupted_at(number, work):
        gc.collect()
        assert locks.claims() == [], number
        number += 1
    assert number > 50


def test_an_interrupt_at_any_line_leaves_no_name_occupied() -> None:
    work = occupies("emma")(lambda: None)
    work()
    number = 1
    while interrupted_at(number, work):
        gc.collect()
        assert locks.claims() == [], number
        number += 1
    assert number > 30


@pytest.mark.parametrize("rolled_back", [None, "transaction", "savepoint"])
def test_an_interrupt_of_the_release_after_a_transaction_is_told(item: Item, rolled_back: str | None) -> None:
    def work() -> None:
        with transaction.atomic(), occupy(item):
            Item.objects.update(name="new")
            if rolled_back is not None:
                raise ZeroDivisionError

    with pytest.raises(Interrupted), interrupts(lambda frame: frame.f_code is Grant.release.__code__):
        if rolled_back == "savepoint":
            with transaction.atomic():
                work()
        work()
    assert locks.claims() == []
    assert Item.objects.get().name == ("new" if rolled_back is None else "Emma")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in the end of a generator
def test_an_interrupt_at_any_line_in_a_transaction_leaves_nothing_when_its_session_has_ended(item: Item) -> None:
    def work() -> None:
        with transaction.atomic(), occupy(item):
            pass

    work()
    number = 1
    while interrupted_at(number, work):
        connection.close()
        gc.collect()
        assert locks.claims() == [], number
        number += 1
    assert number > 100


def test_a_block_whose_exit_never_ran_is_noticed(item: Item) -> None:
    occupied = occupy(item, ttl=0.3)
    leave_without_exit(occupied)
    eventually(lambda: locks.claims() == [], 10)


def test_nobody_relies_on_a_lock_that_was_lost_after_such_a_block(item: Item) -> None:
    occupied: Any = occupy(item)
    leave_without_exit(occupied)
    locks.evict(locks.claims()[0].name)
    assert not occupied.grant.renew()
    with transaction.atomic():
        Item.objects.update(name="committed")
    assert Item.objects.get().name == "committed"


def test_what_is_forgotten_is_relied_on_by_nobody(item: Item) -> None:
    def work() -> None:
        with ExitStack() as stack:
            stack.enter_context(interrupts(lambda frame: frame.f_code is EXIT.__code__))
            stack.enter_context(occupy(item))

    with pytest.raises(Interrupted):
        work()
    gc.collect()
    locks.evict(locks.claims()[0].name)
    with transaction.atomic():
        Item.objects.update(name="committed")
    assert Item.objects.get().name == "committed"


def test_an_interrupt_is_no_wrong_primary_key(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(value: Any) -> Any:
        raise Interrupted

    monkeypatch.setattr(Item._meta.pk, "to_python", interrupted)
    with pytest.raises(Interrupted):
        occupy(Item, pk=item.pk)
