"""Guarded models of every kind: inherited, proxy models, with other primary keys."""

import django
import pytest
from django.db import connection, models, transaction
from django.test.utils import isolate_apps
from guarded.helpers import refused, save, sql_of
from guarded.library.models import Account, Magazine, Publication, Selected

from interlock.django.guarded import Guarded, written


class TestInheritance:
    @pytest.fixture(autouse=True)
    def magazine(self) -> Magazine:
        return Magazine.objects.create(title="Time", pages=10, issue=1)

    @pytest.fixture
    def mine(self, magazine: Magazine) -> Magazine:
        return Magazine.objects.get(pk=magazine.pk)

    def test_a_table_is_written_only_if_a_column_of_it_changed(self, mine: Magazine) -> None:
        (update,) = sql_of(save, mine, issue=2)
        assert "library_magazine" in update
        assert len(sql_of(save, mine, title="Life", issue=3)) == 2
        assert written(mine) == {"title", "issue"}

    @pytest.mark.parametrize("field", ["title", "month"])
    def test_a_stale_field_of_either_table_is_refused(self, mine: Magazine, field: str) -> None:
        Magazine.objects.update(**{field: "theirs"})
        setattr(mine, field, "mine")
        assert set(refused(save, mine, pages=99, issue=99).fields) == {field}
        magazine = Magazine.objects.get()
        assert (magazine.pages, magazine.issue) == (10, 1)

    def test_a_save_after_a_refused_second_table_writes_the_first(self, mine: Magazine) -> None:
        Magazine.objects.update(month="theirs")
        refused(save, mine, month="mine", pages=99)
        mine.refresh_from_db(fields=["month"])
        mine.save()
        assert Magazine.objects.get().pages == 99

    def test_a_refusal_after_a_written_table_undoes_the_transaction(self, mine: Magazine) -> None:
        Magazine.objects.update(month="theirs")
        mine.title, mine.month = "mine", "mine"
        with transaction.atomic():
            refused(mine.save)
            with pytest.raises(transaction.TransactionManagementError):
                Magazine.objects.get()
        assert Magazine.objects.get().title == "Time"

    def test_a_copy_under_a_new_key_is_inserted_in_both_tables(self, mine: Magazine) -> None:
        mine.pk = mine.id = None
        mine.save()
        assert Magazine.objects.count() == Publication.objects.count() == 2
        assert len(sql_of(save, mine, issue=5, title="Life")) == 2
        assert Magazine.objects.get(pk=mine.pk).issue == 5

    def test_a_child_made_of_a_parent_is_guarded(self) -> None:
        parent = Publication.objects.create(title="New")
        child = Magazine(publication_ptr=parent, title="New")
        child.save()
        Magazine.objects.filter(pk=child.pk).update(month="June")
        refused(save, child, month="July")

    def test_a_deferred_child_reads_its_key_of_the_parent(self) -> None:
        mine = Magazine.objects.only("title").get()
        save(mine, title="Life")
        assert Magazine.objects.get().title == "Life"


class TestKeys:
    def test_a_row_with_a_key_set_by_hand_is_inserted_and_guarded(self) -> None:
        made = Account(number="1", owner="Ann")
        made.save()
        Account.objects.update(owner="Bob")
        save(made, balance=5)
        account = Account.objects.get()
        assert (account.owner, account.balance) == ("Bob", 5)

    def test_another_key_makes_another_row(self) -> None:
        made = Account.objects.create(number="1", owner="Ann")
        save(made, number="2")
        assert sorted(Account.objects.values_list("number", "owner")) == [("1", "Ann"), ("2", "Ann")]

    if django.VERSION >= (5, 2):

        def test_a_key_of_several_columns_is_guarded(self) -> None:
            with isolate_apps("guarded.library"):

                class Seat(Guarded, models.Model):
                    pk = models.CompositePrimaryKey("row", "seat")
                    row = models.IntegerField()
                    seat = models.IntegerField()
                    guest = models.CharField(max_length=20, default="")
                    note = models.CharField(max_length=20, default="")

                    class Meta:
                        app_label = "library"

            with connection.schema_editor() as editor:
                editor.create_model(Seat)
            try:
                Seat.objects.create(row=1, seat=2)
                mine = Seat.objects.get()
                Seat.objects.update(note="theirs")
                save(mine, guest="mine")
                assert Seat.objects.values_list("guest", "note").get() == ("mine", "theirs")
                refused(save, mine, note="mine")
            finally:
                with connection.schema_editor() as editor:
                    editor.delete_model(Seat)


def test_a_model_that_selects_on_save_is_guarded_too() -> None:
    Selected.objects.create(name="read")
    mine = Selected.objects.get()
    Selected.objects.update(number=2)
    save(mine, name="mine")
    assert (Selected.objects.get().name, Selected.objects.get().number) == ("mine", 2)
    refused(save, mine, number=3)
