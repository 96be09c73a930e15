"""`save` of a guarded model: the columns that it writes, and the changes that it refuses."""

import pickle
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.db import DatabaseError, connection, models
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now
from django.test.utils import isolate_apps
from guarded.helpers import refused, save, sql_of, statements
from guarded.library.models import Author, Book, PlainBook

from interlock.core.errors import LockError
from interlock.django.guarded import Guarded, StaleObject, changes, written


def again(book: Book) -> Book:
    return Book.objects.get(pk=book.pk)


def test_only_what_has_changed_is_written_in_one_update(mine: Book) -> None:
    (update,) = sql_of(save, mine, name="name")
    assert update.startswith("UPDATE")
    written_part = update.partition("WHERE")[0]
    assert "name" in written_part
    assert "status" not in written_part
    assert "notes" not in written_part


def test_what_is_written_by_two_is_refused_to_the_second(book: Book) -> None:
    mine, theirs = again(book), again(book)
    save(theirs, name="their name")
    error = refused(save, mine, name="my name", status="free")
    (conflict,) = error.fields.values()
    assert set(error.fields) == {"name"}
    assert (conflict.original, conflict.mine, conflict.theirs) == ("naem", "my name", "their name")
    assert error.instance is mine
    assert not error.deleted
    assert (again(book).name, again(book).status) == ("their name", "use")


def test_one_query_finds_out_why_it_was_refused(mine: Book) -> None:
    Book.objects.update(name="their name")
    with statements() as sql, pytest.raises(StaleObject):
        save(mine, name="my name")
    if connection.features.has_select_for_update:
        update, select = sql
        assert select.endswith("FOR UPDATE")
    else:
        update, _lock, select = sql
    assert update.startswith("UPDATE")
    assert select.startswith("SELECT")


def test_the_error_names_the_fields_and_not_their_values(mine: Book) -> None:
    Book.objects.update(name="a secret")
    with pytest.raises(StaleObject, match=r"somebody else has changed name since it was read") as caught:
        save(mine, name="my secret")
    assert "secret" not in str(caught.value)


def test_the_error_is_one_of_django_and_of_interlock_and_travels(mine: Book) -> None:
    Book.objects.update(name="theirs")
    with pytest.raises(DatabaseError) as caught:
        save(mine, name="mine")
    assert isinstance(caught.value, LockError)
    other = pickle.loads(pickle.dumps(caught.value))
    assert str(other) == str(caught.value)
    assert other.fields == caught.value.fields


def test_after_a_refusal_it_can_be_read_and_done_again(book: Book, mine: Book) -> None:
    Book.objects.update(name="their name")
    refused(save, mine, name="my name")
    assert mine.name == "my name"
    refused(mine.save)
    mine.refresh_from_db()
    save(mine, name="my name")
    assert again(book).name == "my name"


def test_nothing_changed_writes_nothing_but_what_always_changes(book: Book, mine: Book) -> None:
    Book.objects.update(status="free", name="theirs")
    (update,) = sql_of(mine.save)
    assert "changed" in update
    assert again(book).name == "theirs"


def test_fields_that_set_the_time_by_themselves_go_to_the_last(book: Book) -> None:
    mine, theirs = again(book), again(book)
    save(theirs, status="free")
    save(mine, name="name")
    assert again(book).changed == mine.changed > theirs.changed


def test_a_deleted_row_is_not_made_again(mine: Book) -> None:
    Book.objects.all().delete()
    with pytest.raises(StaleObject, match="somebody else has deleted it") as caught:
        save(mine, name="name")
    assert caught.value.deleted
    assert caught.value.fields == {}
    assert not Book.objects.exists()
    mine.save(force_insert=True)
    assert again(mine).name == "name"


def test_an_instance_can_recreate_the_row_that_it_deleted(book: Book) -> None:
    key = book.pk
    book.delete()
    save(book, pk=key)
    assert again(book).name == "naem"


def test_a_deleted_row_is_noticed_by_fields_that_are_not_checked(mine: Book) -> None:
    Book.objects.all().delete()
    assert refused(mine.save).deleted


def test_a_write_of_what_stands_there_is_no_refusal(book: Book) -> None:
    """MariaDB counts the rows that an UPDATE changes, unless the client asks for those that it matches."""
    mine = Book.objects.only("name").get()
    assert len(sql_of(save, mine, status="use")) == 1


def test_a_new_instance_goes_on_from_what_it_has_inserted() -> None:
    book = Book(name="naem")
    book.save()
    Book.objects.update(status="free")
    assert len(sql_of(save, book, name="name")) == 1
    assert (again(book).name, again(book).status) == ("name", "free")


class TestUpdateFields:
    def test_a_named_field_that_has_not_changed_is_not_written(self, book: Book, mine: Book) -> None:
        Book.objects.update(status="free")
        assert sql_of(mine.save, update_fields=["status"]) == []
        assert again(book).status == "free"

    def test_no_fields_save_nothing(self, book: Book) -> None:
        book.name = "name"
        assert sql_of(book.save, update_fields=[]) == []


def test_a_forced_update_of_a_deleted_row_is_an_error(mine: Book) -> None:
    Book.objects.all().delete()
    with pytest.raises(DatabaseError):
        mine.save(force_update=True)


class TestValues:
    """A field has changed if the database would store another value."""

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("copies", "1"),
            ("copies", True),
            ("price", "1.00"),
            ("price", Decimal("1.0")),
            ("price", 1),
            ("bought", "2024-05-01"),
            ("rating", None),
            ("tags", ["red"]),
            ("cover", ""),
        ],
    )
    def test_the_same_in_another_type_is_no_change(self, book: Book, field: str, value: object) -> None:
        Book.objects.update(bought=date(2024, 5, 1))
        mine = again(book)
        setattr(mine, field, value)
        assert sql_of(mine.save, update_fields=[field]) == []

    @pytest.mark.parametrize("value", [[1, True], [1.0, 1], [True, 1], ["1", 1]])
    def test_json_values_of_other_types_are_other_values(self, book: Book, value: object) -> None:
        Book.objects.update(tags=[1, 1])
        mine = again(book)
        save(mine, tags=value)
        assert repr(again(book).tags) == repr(value)

    def test_a_file_is_written_when_it_has_another_name(self, book: Book, mine: Book) -> None:
        mine.cover.save("cover.txt", ContentFile(b"a cover"))
        first = again(book).cover.name
        assert first
        assert "cover" not in sql_of(save, mine, name="name")[0]
        theirs = again(book)
        save(theirs, cover="theirs.txt")
        error = refused(save, mine, cover="mine.txt")
        assert error.fields["cover"].theirs == "theirs.txt"
        assert error.fields["cover"].original == first

    def test_a_related_object_is_compared_by_its_key(self, book: Book) -> None:
        one, two = Author.objects.create(name="One"), Author.objects.create(name="Two")
        mine, theirs = again(book), again(book)
        save(mine, author=one)
        conflict = refused(save, theirs, author_id=two.pk).fields["author"]
        assert (conflict.original, conflict.mine, conflict.theirs) == (book.author_id, two.pk, one.pk)


class TestExpressions:
    def test_an_expression_is_written_without_a_check(self, book: Book) -> None:
        one, two = again(book), again(book)
        one.copies = F("copies") + 1
        two.copies = F("copies") + 1
        one.save()
        two.save()
        assert again(book).copies == 3

    def test_an_expression_is_applied_once(self, book: Book, mine: Book) -> None:
        save(mine, copies=F("copies") + 1)
        save(mine, name="name")
        assert again(book).copies == 2
        mine.refresh_from_db()
        assert mine.copies == 2
        save(mine, copies=F("copies") + 1)
        assert again(book).copies == 3

    @pytest.mark.parametrize("expression", [F("copies") + 1, Value(2), Case(When(copies=1, then=2), default=0)])
    def test_the_computed_value_is_the_next_that_is_checked(self, book: Book, mine: Book, expression: Any) -> None:
        save(mine, copies=expression)
        assert mine.copies == 2
        assert changes(mine) == {}
        Book.objects.update(copies=100)
        refused(save, mine, copies=mine.copies + 1)
        assert again(book).copies == 100

    def test_a_computed_moment_is_known_after_the_save(self, book: Book) -> None:
        save(book, due=Now())
        Book.objects.update(name="theirs")
        assert isinstance(book.due, datetime)
        assert changes(book) == {}
        book.refresh_from_db(fields=["name"])
        save(book, due=book.due - timedelta(days=1))
        assert again(book).due == book.due

    def test_a_new_row_may_have_one(self) -> None:
        made = Book.objects.create(name="new", copies=Value(2) + 3)
        assert made.copies == 5
        Book.objects.update(copies=100)
        refused(save, made, copies=made.copies + 1)

    def test_fields_beside_an_expression_are_checked(self, book: Book, mine: Book) -> None:
        Book.objects.update(name="theirs")
        assert set(refused(save, mine, copies=F("copies") + 1, name="mine").fields) == {"name"}
        assert again(book).copies == 1


def test_what_the_last_save_wrote_can_be_asked(mine: Book) -> None:
    save(mine, name="name")
    assert written(mine) == {"name", "changed"}
    mine.save()
    assert written(mine) == {"changed"}
    assert written(Book()) == frozenset()


def test_a_model_that_would_not_be_guarded_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Backwards cannot be created: Guarded must come before"):

        class Backwards(models.Model, Guarded):
            class Meta:
                app_label = "library"


def test_guarded_listed_twice_is_refused_with_the_cure() -> None:
    with pytest.raises(
        TypeError, match=r"Twice cannot be created.*only once.*omit it if another base class is guarded"
    ):

        class Twice(Guarded, Book):  # type: ignore[misc]
            class Meta:
                app_label = "library"
                proxy = True


def test_other_bases_that_do_not_fit_have_the_error_of_python() -> None:
    with pytest.raises(TypeError, match=r"^Cannot create"):

        class Unrelated(models.Model, Author):
            class Meta:
                app_label = "library"


def test_a_base_before_guarded_leaves_the_model_guarded() -> None:
    with isolate_apps("guarded.library"):

        class Late(PlainBook, Guarded):
            class Meta:
                app_label = "library"
                proxy = True

        PlainBook.objects.create(name="naem")
        mine, theirs = Late.objects.get(), Late.objects.get()
    save(theirs, name="theirs")
    refused(save, mine, name="mine")
