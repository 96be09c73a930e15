"""The check before a commit: a holder that has lost its lock commits nothing."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.db.models import F
from store.shelf.models import Item
from store.table_changes import end_leases, some_lease_is_over
from store.test_occupy import add_one, elsewhere, is_free, refuse

from interlock import LockLost, StoreError
from interlock.django import alocks, commit_checks, locks, occupies, occupy, transactions
from interlock.django.testing import override_locks
from interlock.testing.waiting import eventually


def write(item: Item) -> None:
    item.name = "mine"
    item.save()


def evict_unseen() -> None:
    """Evict the only holder as another process would, without a notification to it."""
    elsewhere(lambda: locks.evict(locks.claims()[0].name)).result(20)


@transaction.atomic
def revise(lose: Callable[[], None]) -> None:
    """Write, and lose the lock meanwhile."""
    Item.objects.update(name="mine")
    elsewhere(lose).result(20)


@contextmanager
def loses(item: Item) -> Iterator[None]:
    """Check that the block is told of the loss of its lock, has written nothing, and leaves the row free."""
    with pytest.raises(LockLost):
        yield
    assert Item.objects.get().name == "Emma"
    assert is_free(item)


LOSSES = [evict_unseen] if settings.DATABASE == "sqlite" else [evict_unseen, end_leases]


@pytest.mark.parametrize("lose", LOSSES)
class TestALoser:
    def test_commits_nothing_when_it_lost_in_the_block(self, item: Item, lose: Any) -> None:
        with loses(item), transaction.atomic(), occupy(item):
            write(item)
            elsewhere(lose).result(20)
        assert connection.get_autocommit()

    def test_a_loss_between_block_and_commit_commits_nothing(self, item: Item, lose: Any) -> None:
        with loses(item), transaction.atomic():
            with occupy(item):
                write(item)
            elsewhere(lose).result(20)

    def test_commits_nothing_in_a_transaction_inside_of_the_block(self, item: Item, lose: Any) -> None:
        with loses(item), occupy(item):
            revise(lose)

    def test_commits_nothing_in_a_decorated_function(self, item: Item, lose: Any) -> None:
        with loses(item):
            occupies("emma")(revise)(lose)

    def test_commits_nothing_from_a_task(self, item: Item, lose: Any) -> None:
        async def story() -> None:
            try:
                async with occupy(item):
                    await sync_to_async(revise)(lose)
            finally:
                await alocks.close()

        with loses(item):
            async_to_sync(story)()


def test_what_was_released_by_hand_is_not_missed(item: Item) -> None:
    with transaction.atomic():
        row_lock = occupy(item)
        with row_lock:
            write(item)
            row_lock.grant.release()
    assert Item.objects.get().name == "mine"


def test_a_loser_in_the_locks_of_another_store_commits_nothing(item: Item) -> None:
    with override_locks(), loses(item), transaction.atomic():
        with occupy(item):
            write(item)
        locks.evict(locks.claims()[0].name)


def test_a_store_that_can_not_be_asked_takes_no_lease_away(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    with override_locks() as held:
        with transaction.atomic():
            with occupy(item):
                write(item)

            monkeypatch.setattr(held._client.state().queue, "renew", refuse)
        monkeypatch.undo()
    assert Item.objects.get().name == "mine"


if settings.DATABASE != "sqlite":  # which has no rows to lock

    @contextmanager
    def stopped_in_its_commit(item: Item, ttl: float) -> Iterator[None]:
        """Another thread occupies a row, has locked its claim's row, and stops during its commit."""
        in_commit, go_on = threading.Event(), threading.Event()

        def work() -> None:
            mine = connections["default"]
            mine.ensure_connection()
            commit = mine._commit

            def stop() -> None:
                in_commit.set()
                assert go_on.wait(60)
                commit()

            with transaction.atomic():
                with occupy(Item, pk=item.pk, ttl=ttl) as row:
                    add_one(row)
                mine._commit = stop

        late = elsewhere(work)
        assert in_commit.wait(60)
        try:
            yield
        finally:
            go_on.set()
            late.result(60)

    def test_the_next_holder_waits_for_a_commit_past_its_lease(item: Item) -> None:
        def add() -> int:
            with transaction.atomic():
                with occupy(Item, pk=item.pk, timeout=60) as mine:
                    add_one(mine)
            return int(mine.count)

        with stopped_in_its_commit(item, 2):
            eventually(some_lease_is_over, 60)
            next_one = elsewhere(add)
            with pytest.raises(TimeoutError):
                next_one.result(0.3)
        assert next_one.result(60) == 2
        assert Item.objects.get().count == 2

    def test_a_commit_that_takes_long_holds_back_no_other_renewal(item: Item) -> None:
        with locks.lock("other", ttl=60) as other, stopped_in_its_commit(item, 60):
            (slow,) = [view for view in locks.claims() if view.name != "other"]
            state = locks["default"]._client.state()
            claims = [grant._claim for grant in state.watchdog.live()]
            claims.sort(key=lambda claim: claim.id != slow.id)
            answers = elsewhere(lambda: state.queue.renew(claims)).result(20)
            assert isinstance(answers[0], StoreError)
            assert answers[1] == 1
            assert other.held
        assert Item.objects.get().count == 1
        assert is_free(item)

    def test_nobody_evicts_between_the_check_and_the_commit(item: Item) -> None:
        found = []

        def in_commit() -> None:
            evicted = elsewhere(lambda: locks.evict(locks.claims()[0].name))
            with pytest.raises(TimeoutError):
                evicted.result(0.3)
            found.append(evicted)
            commit()

        connection.ensure_connection()
        commit = connection._commit
        with transaction.atomic(), occupy(item):
            add_one(item)
            connection._commit = in_commit
        connection._commit = commit
        found[0].result(60)
        assert Item.objects.get().count == 1


if settings.DATABASE == "postgresql":

    @pytest.fixture
    def tenant(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        """The same database with another search_path, on which there is no table of claims."""
        given = {**connections.settings["default"], "OPTIONS": {"options": "-c search_path=tenant"}}
        monkeypatch.setitem(connections.settings, "tenant", given)
        yield "tenant"
        connections["tenant"].close()
        del connections["tenant"]

    def test_a_transaction_with_another_search_path_asks_the_store(item: Item, tenant: str) -> None:
        with occupy(item), transaction.atomic(using=tenant), connections[tenant].cursor() as cursor:
            cursor.execute("SELECT 1")
        with pytest.raises(LockLost), occupy(item), transaction.atomic(using=tenant):
            elsewhere(evict_unseen).result(20)

    def read_first(item: Item) -> None:
        """Take the snapshot of a transaction, which then does not contain later claims."""
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        item.refresh_from_db()

    def test_a_claim_that_is_younger_than_the_snapshot_is_not_lost(item: Item) -> None:
        with transaction.atomic():
            read_first(item)
            with occupy(item):
                Item.objects.update(name="mine")
        assert Item.objects.get().name == "mine"
        assert is_free(item)

    def test_a_claim_that_is_younger_than_the_snapshot_may_be_lost(item: Item) -> None:
        with loses(item), transaction.atomic():
            read_first(item)
            with occupy(item):
                Item.objects.update(name="mine")
            elsewhere(evict_unseen).result(20)

    @pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
    @pytest.mark.parametrize("lost", [False, True])
    def test_a_transaction_with_its_own_isolation_asks_the_store(item: Item, level: str, lost: bool) -> None:
        row_lock = occupy(item)
        ends = loses(item) if lost else nullcontext()
        with ends, row_lock, transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            Item.objects.update(name="mine")
            assert elsewhere(row_lock.grant.renew).result(20)
            if lost:
                elsewhere(evict_unseen).result(20)
        assert Item.objects.get().name == ("Emma" if lost else "mine")


@pytest.mark.parametrize("there", [False] if settings.DATABASE == "sqlite" else [True, False])
def test_a_lease_that_ends_while_the_store_is_asked_is_lost(
    item: Item, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_checks, "_is_in", lambda *_: there)
    name = "_lock_claims" if there else "_ask_store"
    ask = getattr(commit_checks, name)
    with pytest.raises(LockLost), transaction.atomic():
        row_lock = occupy(item)
        with row_lock:
            write(item)

        def late(*args: Any) -> None:
            ask(*args)
            row_lock.grant._grant._deadline = 0.0  # the clock of the holder has come there meanwhile

        monkeypatch.setattr(commit_checks, name, late)
    assert Item.objects.get().name == "Emma"


class Interrupted(Exception):
    """Stands for an exception of Celery's soft time limit, `gevent.Timeout` or a signal handler, at any line."""


def interrupted(*_: Any) -> None:
    raise Interrupted


def test_a_hook_of_another_that_raises_does_not_keep_the_lock(item: Item) -> None:
    with pytest.raises(Interrupted) as caught, transaction.atomic():
        transaction.on_commit(interrupted)
        with occupy(item):
            item.count = F("count") + 1
            item.save()
    assert is_free(item)
    assert caught.value.__traceback__ is not None  # which has kept the hooks that were not called
    assert Item.objects.get().count == 1


def test_hooks_registered_in_the_block_run_before_the_release(item: Item) -> None:
    seen = []
    with transaction.atomic(), occupy(item):
        transaction.on_commit(lambda: seen.append([each.state for each in locks.claims()]))
    assert seen == [["using"]]
    assert is_free(item)


def test_the_traceback_of_a_failed_commit_does_not_keep_the_lock(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise IntegrityError("a deferred constraint")

    connection.ensure_connection()
    with pytest.raises(IntegrityError) as caught:
        with transaction.atomic():
            with occupy(item):
                item.save()
            monkeypatch.setattr(connection, "_commit", fail)
    monkeypatch.undo()
    assert is_free(item)
    assert caught.value.__traceback__ is not None


def seen_at_close(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return a list that gets the states of the claims whenever the session of the connection is about to end."""
    seen: list[list[str]] = []
    connection.ensure_connection()
    close = connection._close

    def look_and_close() -> None:
        seen.append([each.state for each in locks.claims()])
        close()

    monkeypatch.setattr(connection, "_close", look_and_close)
    return seen


def test_a_session_with_a_locked_claim_ends_before_the_release(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise DatabaseError("another command is already in progress")

    with override_locks():
        seen = seen_at_close(monkeypatch)
        with pytest.raises(Interrupted), transaction.atomic():
            with occupy(item):
                item.save()
            monkeypatch.setattr(transactions, "check_before_commit", interrupted)
            monkeypatch.setattr(connection, "_rollback", fail)
        assert seen == [["using"]]
        assert locks.claims() == []


def test_an_interrupted_commit_releases_after_its_session_ended(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin() -> None:
        with transaction.atomic():
            with occupy(item):
                item.save()
            monkeypatch.setattr(connection, "_commit", interrupted)

    with override_locks():
        seen = seen_at_close(monkeypatch)
        with pytest.raises((Interrupted, DatabaseError)):  # or an error of Django's clean-up
            begin()
        connection.close()
        assert seen == [["using"]]
        assert locks.claims() == []


def test_a_sync_function_in_a_thread_with_a_loop_is_locked_too() -> None:
    @occupies("emma")
    def look() -> str:
        return locks.claims()[0].name

    async def story() -> str:
        return look()

    assert asyncio.run(story()) == "emma"
