"""A holder that has lost its lock can't write any more, even if it does not know of the loss yet."""

import asyncio
from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.migrations.writer import MigrationWriter
from django.db.models import F
from guarded.helpers import in_threads, refused, save, sql_of, statements
from guarded.library.models import Account, Book, Ledger, Page

import interlock
from interlock import Grant, InvalidArgument, LockLost, Locks
from interlock.api.connect import open_store
from interlock.core.claims import SEPARATOR
from interlock.django.fenced import FenceField, StaleFence, fenced
from interlock.django.guarded import StaleObject


@pytest.fixture
def locks() -> Iterator[Locks]:
    with interlock.connect("memory://fenced") as locks:
        yield locks
        locks.evict("ledger")


def taken(locks: Locks) -> Grant:
    """Acquire the lock; its holder is evicted in the store, and does not notice."""
    open_store("memory://fenced").queue().evict(SEPARATOR + "ledger", None)
    grant = locks.lock("ledger", renew=False, ttl=600).acquire(timeout=5)
    assert grant is not None
    return grant


@pytest.fixture
def early(locks: Locks) -> Grant:
    """The grant of a holder that was suspended."""
    return taken(locks)


@pytest.fixture
def late(locks: Locks, early: Grant) -> Grant:
    """The grant of the next holder."""
    return taken(locks)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger.objects.create(name="ledger")


class TestUpdate:
    def test_a_holder_writes_and_leaves_its_fence(self, ledger: Ledger, early: Grant) -> None:
        with statements() as sql:
            assert fenced(Ledger.objects.filter(pk=ledger.pk), early).update(balance=5) == 1
        assert len(sql) == 1
        ledger.refresh_from_db()
        assert (ledger.balance, ledger.fence) == (5, early.fence)

    def test_a_late_holder_is_refused(self, ledger: Ledger, early: Grant, late: Grant) -> None:
        fenced(ledger, late).update(balance=10)
        with pytest.raises(StaleFence, match=rf"a holder with fence {late.fence} has written it") as caught:
            fenced(ledger, early).update(balance=5)
        assert isinstance(caught.value, LockLost)
        ledger.refresh_from_db()
        assert (ledger.balance, ledger.fence) == (10, late.fence)

    def test_a_refusal_leaves_the_transaction_usable(self, ledger: Ledger, early: Grant, late: Grant) -> None:
        Ledger.objects.create(name="second")
        with transaction.atomic():
            fenced(ledger, late).update(balance=10)
            for rows in (ledger, Ledger.objects.all()):
                with pytest.raises(StaleFence):
                    fenced(rows, early).update(balance=5)
            assert Ledger.objects.get(name="ledger").balance == 10

    def test_a_holder_that_knows_of_its_loss_asks_nothing(self, locks: Locks, ledger: Ledger) -> None:
        grant = locks.lock("ledger").acquire()
        locks.evict("ledger")
        grant.renew()
        with statements() as sql, pytest.raises(LockLost):
            fenced(ledger, grant).update(balance=5)
        assert sql == []

    def test_of_several_rows_all_are_written_or_none(self, ledger: Ledger, early: Grant, late: Grant) -> None:
        other = Ledger.objects.create(name="other")
        fenced(other, late).update(balance=10)
        with pytest.raises(StaleFence):
            fenced(Ledger.objects.all(), early).update(balance=5)
        assert sorted(Ledger.objects.values_list("balance", flat=True)) == [0, 10]
        assert fenced(Ledger.objects.all(), late).update(balance=7) == 2

    def test_rows_that_stop_matching_by_their_update_are_counted(self, ledger: Ledger, early: Grant) -> None:
        assert fenced(Ledger.objects.filter(balance=0), early).update(balance=5) == 1

    def test_no_rows_are_no_refusal(self, early: Grant) -> None:
        assert fenced(Ledger.objects.all(), early).update(balance=5) == 0
        assert fenced(Ledger.objects.filter(pk=1), early).update(balance=5) == 0

    def test_conditions_on_other_tables_are_answered_first(self, ledger: Ledger, early: Grant, late: Grant) -> None:
        Page.objects.create(name="page", text="text")
        rows = Ledger.objects.filter(page__text="text")
        assert fenced(rows, late).update(balance=5) == 1
        with pytest.raises(StaleFence):
            fenced(rows, early).update(balance=6)
        assert Ledger.objects.get(name="page").balance == 5

    def test_a_condition_on_a_computed_key_is_not_one_row(self, early: Grant, late: Grant) -> None:
        one, two = (Ledger.objects.create(name=name) for name in "ab")
        Ledger.objects.update(balance=F("pk"))
        fenced(one, late).update(name="late")
        with pytest.raises(StaleFence):
            fenced(Ledger.objects.filter(pk=F("balance")), early).update(name="early")
        assert Ledger.objects.get(pk=two.pk).name == "b"

    def test_other_databases_are_written(self, early: Grant) -> None:
        Ledger.objects.using("other").create(name="other")
        assert fenced(Ledger.objects.using("other"), early).update(balance=5) == 1
        assert fenced(Ledger.objects.using("other").get(), early).update(balance=6) == 1
        assert Ledger.objects.using("other").get().balance == 6

    def test_asyncio_writes_too(self, ledger: Ledger, early: Grant, late: Grant) -> None:
        async def story() -> None:
            try:
                assert await fenced(ledger, late).aupdate(balance=5) == 1
                with pytest.raises(StaleFence):
                    await fenced(ledger, early).aupdate(balance=6)
            finally:
                await sync_to_async(connections.close_all)()

        asyncio.run(story())

    def test_a_stale_writer_that_waited_for_the_row_is_refused(
        self, ledger: Ledger, early: Grant, late: Grant
    ) -> None:
        for _ in range(5):
            Ledger.objects.update(fence=0, name="")
            answers = in_threads(
                lambda: fenced(ledger, early).update(name="early"),
                lambda: fenced(ledger, late).update(name="late"),
            )
            assert answers[1] == 1
            assert answers[0] == 1 or isinstance(answers[0], StaleFence)
            assert Ledger.objects.values_list("name", "fence").get() == ("late", late.fence)


class TestArguments:
    def test_a_model_without_a_fence_is_refused(self, early: Grant) -> None:
        with pytest.raises(InvalidArgument, match=r"library.Book must have one FenceField .* It has: none"):
            fenced(Book.objects.all(), early)

    def test_a_wrong_name_is_refused(self, early: Grant) -> None:
        with pytest.raises(InvalidArgument, match=r"a FenceField 'name' .* It has: fence"):
            fenced(Ledger.objects.all(), early, field="name")
        fenced(Ledger.objects.all(), early, field="fence")

    def test_an_unsaved_instance_is_refused(self, early: Grant) -> None:
        with pytest.raises(InvalidArgument, match="never saved"):
            fenced(Ledger(name="new"), early)

    def test_something_else_than_a_grant_is_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="needs the grant of one lock, not int"):
            fenced(Ledger.objects.all(), 5)  # type: ignore[arg-type]

    def test_the_fence_itself_is_not_to_be_given(self, early: Grant) -> None:
        with pytest.raises(InvalidArgument, match=r"fenced\(\) itself writes"):
            fenced(Ledger.objects.all(), early).update(fence=7)

    def test_another_table_is_refused(self, early: Grant) -> None:
        page = Page.objects.create(name="page")
        with pytest.raises(InvalidArgument, match=r"in the table of library.Ledger\. Pass rows of that"):
            fenced(page, early).update(balance=5)
        assert fenced(page.ledger_ptr, early).update(balance=5) == 1

    def test_a_field_that_is_no_column_is_refused(self, early: Grant) -> None:
        with pytest.raises(InvalidArgument, match="page is not in the table of the fence"):
            fenced(Ledger.objects.all(), early).update(page=Page())

    def test_a_query_set_is_not_saved(self, early: Grant) -> None:
        with pytest.raises(InvalidArgument, match="one instance of a Guarded model"):
            fenced(Account.objects.all(), early).save()
        with pytest.raises(InvalidArgument, match="one instance of a Guarded model"):
            fenced(Ledger.objects.create(name="plain"), early).save()


class TestGuardedSave:
    @pytest.fixture(autouse=True)
    def account(self) -> Account:
        return Account.objects.create(number="1", owner="Ann")

    @pytest.fixture
    def mine(self, account: Account) -> Account:
        return Account.objects.get(pk=account.pk)

    def test_a_holder_saves_and_leaves_its_fence(self, mine: Account, early: Grant) -> None:
        mine.balance = 5
        assert len(sql_of(fenced(mine, early).save)) == 1
        account = Account.objects.get()
        assert (account.balance, account.fence) == (5, early.fence)

    def test_a_stale_holder_is_refused_even_if_its_fields_are_same(self, early: Grant, late: Grant) -> None:
        mine, theirs = Account.objects.get(), Account.objects.get()
        theirs.owner = "Bob"
        fenced(theirs, late).save()
        mine.balance = 5
        with pytest.raises(StaleFence, match=rf"a holder with fence {late.fence} has written it") as caught:
            fenced(mine, early).save()
        assert isinstance(caught.value, StaleObject)
        assert Account.objects.get().balance == 0

    def test_each_later_save_of_the_instance_is_fenced_too(self, mine: Account, early: Grant, late: Grant) -> None:
        fenced(mine, early).save()
        fenced(Account.objects.get(), late).save()
        with pytest.raises(StaleFence):
            save(mine, balance=5)

    def test_a_fence_that_is_set_by_hand_is_heeded(self, mine: Account, early: Grant, late: Grant) -> None:
        fenced(Account.objects.get(), late).save()
        with pytest.raises(StaleFence):
            save(mine, fence=early.fence, balance=5)

    def test_a_later_holder_saves_what_an_earlier_one_has_read(
        self, mine: Account, early: Grant, late: Grant
    ) -> None:
        fenced(Account.objects.get(), early).save()
        mine.balance = 5
        fenced(mine, late).save()
        assert Account.objects.values_list("balance", "fence").get() == (5, late.fence)

    def test_fields_are_guarded_beside_the_fence(self, mine: Account, early: Grant) -> None:
        Account.objects.update(owner="Bob")
        mine.owner = "Carl"
        error = refused(fenced(mine, early).save)
        assert set(error.fields) == {"owner"}
        assert not isinstance(error, StaleFence)

    def test_named_fields_are_saved_with_the_fence(self, mine: Account, early: Grant) -> None:
        mine.balance, mine.owner = 5, "Bob"
        fenced(mine, early).save(update_fields=["balance"])
        account = Account.objects.get()
        assert (account.balance, account.owner, account.fence) == (5, "Ann", early.fence)

    def test_who_sets_no_fence_is_not_fenced(self, mine: Account, early: Grant) -> None:
        fenced(Account.objects.get(), early).save()
        save(mine, balance=5)
        assert Account.objects.values_list("balance", "fence").get() == (5, early.fence)

    def test_a_deleted_row_is_no_stale_fence(self, mine: Account, early: Grant) -> None:
        Account.objects.all().delete()
        assert refused(fenced(mine, early).save).deleted


class TestField:
    def test_a_plain_save_never_takes_the_fence_back(self, ledger: Ledger, early: Grant, late: Grant) -> None:
        mine = Ledger.objects.get()
        fenced(ledger, late).update(balance=5)
        save(mine, name="mine")
        assert Ledger.objects.get().fence == late.fence

    def test_a_migration_makes_it_again(self) -> None:
        text, _ = MigrationWriter.serialize(FenceField())
        assert text == "interlock.django.fenced.FenceField(default=0, editable=False)"
        text, _ = MigrationWriter.serialize(FenceField(default=1, editable=True, db_index=True))
        assert text == "interlock.django.fenced.FenceField(db_index=True, default=1, editable=True)"
