"""Models whose own `save()` sets fields, and whose `delete()` keeps the row."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone
from guarded.helpers import before_saves, in_atomic, refused, save
from guarded.library.models import Account, Author, Book, Ticket

from interlock.django.guarded import StaleObject, changes


@pytest.fixture
def ticket() -> Ticket:
    return Ticket.objects.create(title="naem")


def both() -> tuple[Ticket, Ticket]:
    return Ticket.objects.get(), Ticket.objects.get()


class TestClocks:
    def test_two_saves_of_different_fields_are_both_kept(self, ticket: Ticket) -> None:
        Ticket.objects.update(day="2000-01-01")
        mine, theirs = both()
        before = timezone.now()
        save(theirs, due=before)
        mine.deleted_at = before
        mine.save()
        found = Ticket.objects.get()
        assert (found.due, found.deleted_at, found.day) == (before, before, timezone.localdate())
        assert found.modified is not None
        assert found.modified >= before

    def test_one_that_a_receiver_sets_is_no_conflict(self, ticket: Ticket) -> None:
        mine, theirs = both()

        def stamp(instance: Ticket, **_: Any) -> None:
            instance.deleted_at = timezone.now()

        with before_saves(stamp, Ticket):
            save(theirs, due=timezone.now())
            mine.save()
        assert Ticket.objects.get().deleted_at == mine.deleted_at

    def test_one_that_the_caller_sets_is_a_conflict(self, ticket: Ticket) -> None:
        mine, theirs = both()
        save(theirs, due=timezone.now())
        assert set(refused(save, mine, due=timezone.now()).fields) == {"due"}

    def test_a_second_try_after_a_refusal_is_no_conflict_of_clocks(self, ticket: Ticket) -> None:
        mine, theirs = both()
        save(theirs, status="closed")
        refused(save, mine, status="again")
        mine.refresh_from_db(fields=["status", "heading"])
        save(mine, due=timezone.now())
        assert Ticket.objects.get().modified == mine.modified


class TestOtherFields:
    def test_a_derived_value_is_refused_and_the_error_names_the_cure(self, ticket: Ticket) -> None:
        mine, theirs = both()
        save(theirs, status="closed")
        stale = refused(save, mine, title="name")
        assert set(stale.fields) == {"heading"}
        assert stale.set_by_save == ("heading",)
        assert "save() itself has set heading" in str(stale)
        assert 'Ticket.on_stale = {"heading": LAST_WINS}' in str(stale)
        assert str(pickle.loads(pickle.dumps(stale))) == str(stale)

    def test_what_the_caller_has_set_is_not_named(self) -> None:
        Book.objects.create(name="naem")
        mine, theirs = Book.objects.get(), Book.objects.get()
        save(theirs, name="theirs")
        stale = refused(save, mine, name="mine")
        assert stale.set_by_save == ()
        assert "itself" not in str(stale)

    def test_a_moment_that_is_not_the_present_is_refused(self, ticket: Ticket) -> None:
        mine, theirs = both()
        moments = iter([datetime(2000, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC)])

        def plan(instance: Ticket, **_: Any) -> None:
            instance.due = next(moments)

        with before_saves(plan, Ticket):
            theirs.save()
            assert set(refused(mine.save).fields) == {"due"}


class TestDelete:
    def test_a_soft_delete_leaves_the_instance_guarded(self, ticket: Ticket) -> None:
        ticket.delete()
        other = Ticket.objects.get()
        Ticket.objects.filter(pk=other.pk).update(title="name")
        ticket.deleted_at = None
        ticket.save()
        assert Ticket.objects.values_list("title", "deleted_at").get() == ("name", None)
        with pytest.raises(StaleObject):
            save(ticket, title="mine")

    def test_a_row_that_is_gone_is_inserted_again(self) -> None:
        account = Account.objects.create(number="1", owner="Ann")
        account.delete()
        account.number = "1"
        account.save()
        assert Account.objects.get().owner == "Ann"
        assert changes(account) == {}

    def test_a_rolled_back_deletion_leaves_the_instance_guarded(self) -> None:
        author = Author.objects.create(name="Ann")
        book = Book.objects.create(name="naem", author=author)
        key = book.pk
        with in_atomic():
            book.delete()
        Book.objects.update(name="theirs")
        book.pk = key
        save(book, status="free")
        assert Book.objects.values_list("name", "status").get() == ("theirs", "free")
        refused(save, book, name="mine")

    def test_a_row_inserted_again_in_the_transaction_is_guarded(self) -> None:
        account = Account.objects.create(number="1", owner="Ann")
        with in_atomic():
            account.delete()
            account.number = "1"
            account.save()
        account.number = "1"
        Account.objects.update(balance=7)
        save(account, owner="Bea")
        assert Account.objects.values_list("owner", "balance").get() == ("Bea", 7)
