"""An exception from a signal handler or a greenlet during a release: no lock stays held."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction
from store.shelf.models import Item
from store.test_commits import Interrupted, interrupted

from interlock.client._sync.grants import Grant
from interlock.django import locks, occupy

pytestmark = pytest.mark.usefixtures("in_memory")


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


def test_an_interrupt_is_no_wrong_primary_key(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Item._meta.pk, "to_python", interrupted)
    with pytest.raises(Interrupted):
        occupy(Item, pk=item.pk)
