"""Guarded models of every kind: inherited, proxy models, with other primary keys."""

import django
import pytest
from django.db import connection, models, transaction
from django.test.utils import isolate_apps
from guarded.helpers import refused, sql_of
from guarded.library.models import Account, Magazine, Publication, Selected

from interlock.django.guarded import Guarded, written


class TestInheritance:
    @pytest.fixture(autouse=True)
    def magazine(self) -> Magazine:
        return Magazine.objects.create(title="Time", pages=10, issue=1)

    def test_each_table_is_written_only_if_something_in_it_has_changed(self) -> None:
        mine = Magazine.objects.get()
        mine.issue = 2
        (update,) = sql_of(mine.save)
        assert "library_magazine" in update
        mine.title, mine.issue = "Life", 3
        assert len(sql_of(mine.save)) == 2
        assert written(mine) == {"title", "issue"}

    @pytest.mark.parametrize("field", ["title", "month"])
    def test_a_stale_field_of_either_table_is_refused(self, field: str) -> None:
        mine = Magazine.objects.get()
        Magazine.objects.update(**{field: "theirs"})
        setattr(mine, field, "mine")
        mine.pages, mine.issue = 99, 99
        assert set(refused(mine.save).fields) == {field}
        magazine = Magazine.objects.get()
        assert (magazine.pages, magazine.issue) == (10, 1)

    def test_after_a_refusal_of_the_second_table_the_first_is_written_again(self) -> None:
        mine = Magazine.objects.get()
        Magazine.objects.update(month="theirs")
        mine.month, mine.pages = "mine", 99
        refused(mine.save)
        mine.refresh_from_db(fields=["month"])
        mine.save()
        assert Magazine.objects.get().pages == 99

    def test_a_refusal_after_a_table_was_written_undoes_the_transaction(self) -> None:
        mine = Magazine.objects.get()
        Magazine.objects.update(month="theirs")
        mine.title, mine.month = "mine", "mine"
        with transaction.atomic():
            refused(mine.save)
            with pytest.raises(transaction.TransactionManagementError):
                Magazine.objects.get()
        assert Magazine.objects.get().title == "Time"

    def test_a_copy_under_a_new_key_is_inserted_in_both_tables(self) -> None:
        mine = Magazine.objects.get()
        mine.pk = mine.id = None
        mine.save()
        assert Magazine.objects.count() == Publication.objects.count() == 2
        mine.issue, mine.title = 5, "Life"
        assert len(sql_of(mine.save)) == 2
        assert Magazine.objects.get(pk=mine.pk).issue == 5

    def test_a_child_made_of_a_parent_is_guarded(self) -> None:
        parent = Publication.objects.create(title="New")
        child = Magazine(publication_ptr=parent, title="New")
        child.save()
        Magazine.objects.filter(pk=child.pk).update(month="June")
        child.month = "July"
        refused(child.save)

    def test_a_deferred_child_reads_its_key_of_the_parent(self) -> None:
        mine = Magazine.objects.only("title").get()
        mine.title = "Life"
        mine.save()
        assert Magazine.objects.get().title == "Life"


class TestKeys:
    def test_a_row_with_a_key_set_by_hand_is_inserted_and_guarded(self) -> None:
        made = Account(number="1", owner="Ann")
        made.save()
        Account.objects.update(owner="Bob")
        made.balance = 5
        made.save()
        account = Account.objects.get()
        assert (account.owner, account.balance) == ("Bob", 5)

    def test_another_key_makes_another_row(self) -> None:
        made = Account.objects.create(number="1", owner="Ann")
        made.number = "2"
        made.save()
        assert sorted(Account.objects.values_list("number", "owner")) == [("1", "Ann"), ("2", "Ann")]

    if django.VERSION >= (5, 2):

        def test_a_key_of_several_columns_is_guarded(self) -> None:
            with isolate_apps("guarded.library"):

                class Place(Guarded, models.Model):
                    pk = models.CompositePrimaryKey("row", "seat")
                    row = models.IntegerField()
                    seat = models.IntegerField()
                    guest = models.CharField(max_length=20, default="")
                    note = models.CharField(max_length=20, default="")

                    class Meta:
                        app_label = "library"

            with connection.schema_editor() as editor:
                editor.create_model(Place)
            try:
                Place.objects.create(row=1, seat=2)
                mine = Place.objects.get()
                Place.objects.update(note="theirs")
                mine.guest = "mine"
                mine.save()
                assert Place.objects.values_list("guest", "note").get() == ("mine", "theirs")
                mine.note = "mine"
                refused(mine.save)
            finally:
                with connection.schema_editor() as editor:
                    editor.delete_model(Place)


def test_a_model_that_selects_on_save_is_guarded_too() -> None:
    Selected.objects.create(name="read")
    mine = Selected.objects.get()
    Selected.objects.update(number=2)
    mine.name = "mine"
    mine.save()
    assert (Selected.objects.get().name, Selected.objects.get().number) == ("mine", 2)
    mine.number = 3
    refused(mine.save)
