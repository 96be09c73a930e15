"""`occupy`: the row is locked until the surrounding transaction has ended."""

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError, connection, connections, transaction
from django.db.models import Model
from django.test import TestCase
from store.shelf.models import Empty, Item, OldItem, Ticket, Volume

from interlock import InvalidArgument, LockTimeout, StoreError
from interlock.django import alocks, locks, occupy
from interlock.django.testing import LocksMixin, assert_free, assert_held, override_locks
from interlock.django.transactions import BrokenTransaction


def elsewhere(work: Callable[[], Any]) -> "Future[Any]":
    """Run `work` in a thread with its own connections."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        finally:
            connections.close_all()

    threading.Thread(target=run, daemon=True).start()
    return future


def add_one(item: Any) -> None:
    """Add one to the count of a row that was read, and write all of the row."""
    item.count += 1
    item.save()


def is_taken(model: type[Model], pk: Any, before: Callable[[], None] = lambda: None) -> bool:
    """Tell whether another thread, which calls `before` first, can't occupy a row."""

    def attempt() -> bool:
        before()
        try:
            with occupy(model, pk=pk, timeout=0):
                return False
        except LockTimeout:
            return True

    return bool(elsewhere(attempt).result(20))


def is_free(item: Item) -> bool:
    """Tell whether another thread could occupy the row now."""
    return not is_taken(Item, item.pk)


def test_it_reads_the_row_afresh_into_the_same_instance(item: Item) -> None:
    Item.objects.filter(pk=item.pk).update(name="Emma, revised")
    item.count = 99
    with occupy(item) as same:
        assert same is item
        assert (item.name, item.count) == ("Emma, revised", 0)
        assert_held(item)
    assert_free(item)


def test_a_model_and_a_pk_give_a_new_instance(item: Item) -> None:
    with occupy(Item, pk=str(item.pk)) as found:
        assert found == item
        assert_held(item)


def test_a_uuid_is_a_primary_key_in_any_spelling() -> None:
    ticket = Ticket.objects.create()
    with occupy(Ticket, pk=str(ticket.pk).upper()) as found:
        assert found == ticket
        assert_held(ticket)


def test_others_wait_and_then_give_up_without_running_their_body(item: Item) -> None:
    with occupy(item):
        assert not is_free(item)
    assert is_free(item)


def test_proxies_and_children_are_the_same_row() -> None:
    volume = Volume.objects.create(name="Persuasion")
    with occupy(volume):
        assert not is_free(Item.objects.get(pk=volume.pk))
        assert_held(OldItem.objects.get(pk=volume.pk))
        assert_held(Item.objects.get(pk=volume.pk))


def test_an_instance_that_is_false_is_read_where_it_came_from(item: Item) -> None:
    Item.objects.using("other").create(pk=item.pk, name="the same key elsewhere")
    with occupy(Empty.objects.using("other").get()) as found:
        assert (found._state.db, found.name) == ("other", "the same key elsewhere")


def test_a_thread_may_occupy_again_what_it_occupies(item: Item) -> None:
    with occupy(item), occupy(item, timeout=0):
        pass
    assert_free(item)


def test_several_rows_are_locked_in_one_order_and_given_as_asked() -> None:
    items = [Item.objects.create(name=name) for name in "abc"]

    def work(mine: list[Any]) -> None:
        for _ in range(5):
            with occupy(*mine, timeout=30) as found:
                assert [each.pk for each in found] == [each.pk for each in mine]
                for each in found:
                    add_one(each)

    copies = [
        [Item.objects.get(pk=each.pk) for each in order] for order in (items, items[::-1], items[1:] + items[:1])
    ]
    for future in [elsewhere(lambda mine=mine: work(mine)) for mine in copies]:
        future.result(60)
    assert [each.count for each in Item.objects.order_by("pk")] == [15, 15, 15]


def test_the_same_row_may_be_given_twice(item: Item) -> None:
    with occupy(item, Item.objects.get(pk=item.pk), timeout=1) as (one, other):
        assert one == other
    assert_free(item)


def test_the_next_holder_reads_what_was_committed(item: Item) -> None:
    inside = threading.Event()
    go_on = threading.Event()

    def first() -> None:
        with transaction.atomic():
            with occupy(Item, pk=item.pk) as mine:
                add_one(mine)
            inside.set()
            assert go_on.wait(20)

    def second() -> int:
        with occupy(Item, pk=item.pk, timeout=20) as mine:
            return int(mine.count)

    one = elsewhere(first)
    assert inside.wait(20)
    other = elsewhere(second)
    with pytest.raises(TimeoutError):
        other.result(0.2)
    go_on.set()
    one.result(20)
    assert other.result(20) == 1


def test_the_lock_is_free_at_once_after_a_rollback(item: Item) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic(), occupy(item):
        item.name = "lost"
        item.save()
        raise ZeroDivisionError
    assert is_free(item)
    item.refresh_from_db()
    assert item.name == "Emma"


def test_a_rolled_back_savepoint_frees_its_rows(item: Item) -> None:
    other = Item.objects.create(name="Persuasion")
    with transaction.atomic():
        with occupy(other):
            pass
        with pytest.raises(ZeroDivisionError), transaction.atomic(), occupy(item):
            raise ZeroDivisionError
        assert is_free(item)
        assert not is_free(other)
    assert is_free(other)


def test_the_end_of_the_connection_frees(item: Item) -> None:
    def work() -> None:
        atomic = transaction.atomic()
        atomic.__enter__()
        with occupy(Item, pk=item.pk):
            pass
        connection.close()

    elsewhere(work).result(20)
    assert is_free(item)


def test_twice_in_one_transaction_does_not_wait_for_itself(item: Item) -> None:
    with transaction.atomic():
        for _ in range(2):
            with occupy(item, timeout=0):
                add_one(item)
    assert_free(item)
    assert Item.objects.get().count == 2


def test_a_broken_transaction_is_an_error(item: Item) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(BrokenTransaction, match="which rolls it back"), occupy(item):
            raise AssertionError
    assert_free(item)


def test_occupy_without_autocommit_and_atomic_is_refused(item: Item) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(BrokenTransaction, match="atomic"), occupy(item):
            raise AssertionError
    finally:
        transaction.set_autocommit(True)


def test_a_deleted_row_is_an_error_and_leaves_no_claim(item: Item) -> None:
    Item.objects.all().delete()
    item.pk = item.pk or 1
    with pytest.raises(Item.DoesNotExist), occupy(Item, pk=item.pk):
        raise AssertionError
    assert locks.claims() == []


@pytest.mark.parametrize(
    ("what", "how", "says"),
    [
        ((), {}, "needs an instance"),
        ((Item(name="new"),), {}, "never saved"),
        ((Ticket(key=uuid.uuid4()),), {}, "never saved"),
        ((Item,), {}, "with its pk"),
        ((Item, Item), {"pk": 1}, "with its pk"),
        ((Item,), {"pk": "one"}, "primary key"),
        ((str,), {"pk": 1}, "with its pk"),
        (("book",), {}, "instances of models"),
    ],
)
def test_what_makes_no_sense_is_said(what: Any, how: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        occupy(*what, **how)


def test_an_unknown_alias_is_said(item: Item) -> None:
    with pytest.raises(InvalidArgument, match="INTERLOCK has no 'nowhere'"), occupy(item, locks="nowhere"):
        raise AssertionError


def test_the_grant_with_its_fence_is_at_hand(item: Item) -> None:
    row_lock = occupy(item, label="revision")
    with row_lock:
        view = locks.claims()[0]
        assert (view.fence, view.label) == (row_lock.grant.fence, "revision")


def test_tasks_occupy_too(item: Item) -> None:
    async def add() -> None:
        async with occupy(Item, pk=item.pk, timeout=30) as mine:
            mine.count += 1
            await mine.asave()

    async def story() -> None:
        await asyncio.gather(*(add() for _ in range(8)))
        await sync_to_async(connections.close_all)()
        await alocks.close()

    async_to_sync(story)()
    assert Item.objects.get().count == 8
    assert_free(item)


def test_a_task_in_a_transaction_is_told_to_use_with(item: Item) -> None:
    async def story() -> None:
        async with occupy(item):
            raise AssertionError

    with pytest.raises(InvalidArgument, match="Use `with`"), transaction.atomic():
        async_to_sync(story)()


def test_a_task_that_waits_in_vain_gets_a_timeout(item: Item) -> None:
    async def story() -> None:
        async with occupy(Item, pk=item.pk, timeout=0.05):
            raise AssertionError

    with occupy(item), pytest.raises(LockTimeout):
        async_to_sync(story)()


def test_a_database_that_fails_inside_leaves_no_claim(item: Item) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), occupy(item):
        Item.objects.create(pk=item.pk, name="a second one")
    assert is_free(item)


async def refuse_later(*_: Any, **__: Any) -> Any:
    raise StoreError("it is away")


def refuse(*_: Any, **__: Any) -> Any:
    raise StoreError("it is away")


class TestAReleaseThatFails:
    def test_goes_behind_the_exception_of_the_block(self, item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
        with override_locks() as held:
            monkeypatch.setattr(held._client.state().queue, "leave", refuse)
            with pytest.raises(KeyboardInterrupt) as caught, occupy(item):
                raise KeyboardInterrupt
            assert "could not be released either; its lease will expire: it is away" in caught.value.__notes__[0]
            with pytest.raises(Item.DoesNotExist) as missing, occupy(Item, pk=0):
                raise AssertionError
            assert "could not be released" in missing.value.__notes__[0]
            monkeypatch.undo()

    def test_is_raised_by_a_block_that_ended_well(self, item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
        with override_locks() as held:
            monkeypatch.setattr(held._client.state().queue, "leave", refuse)
            with pytest.raises(StoreError, match="it is away"), occupy(item):
                pass
            monkeypatch.undo()

    @pytest.mark.parametrize("body", [asyncio.CancelledError(), None])
    def test_in_a_task(self, item: Item, monkeypatch: pytest.MonkeyPatch, body: BaseException | None) -> None:
        async def story() -> None:
            monkeypatch.setattr(alocks["default"]._client.state().queue, "leave", refuse_later)
            try:
                async with occupy(item):
                    if body is not None:
                        raise body
            finally:
                monkeypatch.undo()
                await alocks.close()

        with override_locks(), pytest.raises((StoreError, asyncio.CancelledError)) as caught:
            asyncio.run(story())
        assert isinstance(caught.value, StoreError if body is None else asyncio.CancelledError)
        assert body is None or "could not be released" in body.__notes__[0]


class InTestCase(LocksMixin, TestCase):
    """`occupy` ignores the transaction of a `TestCase`."""

    databases = {"default", "other"}

    def test_a_lock_is_released_at_the_end_of_its_block(self) -> None:
        item = Item.objects.create(name="Emma")
        with occupy(item):
            self.assertHeld(item)
        self.assertFree(item)
