"""The methods by which a guarded instance reports its state."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from django.db import transaction
from guarded.helpers import refused
from guarded.library.models import Book, Careless, Counter, Everything, Magazine, OldBook

from interlock.django.guarded import changes, state_tag, verify


def test_changes_are_what_a_save_would_write(mine: Book) -> None:
    assert changes(mine) == {}
    mine.name = "name"
    mine.tags.append("blue")
    mine.copies = "1"  # type: ignore[assignment]
    assert changes(mine) == {"name": ("naem", "name"), "tags": (["red"], ["red", "blue"])}
    mine.save()
    assert changes(mine) == {}


def test_an_instance_that_was_never_read_has_no_known_changes() -> None:
    assert changes(Book(name="new")) == {}


class TestVerify:
    def test_it_passes_what_is_as_it_was_read(self, mine: Book) -> None:
        mine.name = "mine"
        with transaction.atomic():
            verify(mine)

    def test_it_refuses_any_guarded_field_that_has_changed(self, mine: Book) -> None:
        Book.objects.update(status="free")
        with transaction.atomic():
            error = refused(verify, mine)
        conflict = error.fields["status"]
        assert (conflict.original, conflict.mine, conflict.theirs) == ("use", "use", "free")

    def test_it_refuses_a_deleted_row(self, mine: Book) -> None:
        Book.objects.all().delete()
        with transaction.atomic():
            error = refused(verify, mine)
        assert error.deleted

    def test_it_does_not_heed_fields_in_which_the_last_wins(self) -> None:
        Counter.objects.create()
        mine = Counter.objects.get()
        Counter.objects.update(seen=5)
        with transaction.atomic():
            verify(mine)

    def test_a_model_without_guarded_fields_is_verified_to_be_there(self) -> None:
        Careless.objects.create()
        mine = Careless.objects.get()
        Careless.objects.update(name="theirs")
        with transaction.atomic():
            verify(mine)
            Careless.objects.all().delete()
            refused(verify, mine)

    def test_it_heeds_all_tables_of_an_inherited_model(self) -> None:
        Magazine.objects.create(title="Time")
        for field in ("title", "month"):
            mine = Magazine.objects.get()
            Magazine.objects.update(**{field: "theirs"})
            with transaction.atomic():
                refused(verify, mine)

    def test_it_needs_a_transaction(self, book: Book) -> None:
        with pytest.raises(transaction.TransactionManagementError, match="Begin a transaction"):
            verify(book)

    def test_it_needs_something_that_was_read(self) -> None:
        with pytest.raises(ValueError, match="neither read nor saved"):
            verify(Book(pk=1))


class TestStateTag:
    def test_it_is_the_same_for_the_same_state(self, book: Book) -> None:
        assert state_tag(Book.objects.get()) == state_tag(Book.objects.get()) == state_tag(OldBook.objects.get())

    def test_it_changes_with_any_guarded_field(self, book: Book) -> None:
        seen = {state_tag(Book.objects.get())}
        for change in ({"name": "a"}, {"notes": "a"}, {"tags": ["blue"]}, {"price": "2.00"}, {"rating": 0.5}):
            Book.objects.update(**change)
            seen.add(state_tag(Book.objects.get()))
        assert len(seen) == 6

    def test_it_tells_of_what_was_read_and_not_of_what_was_set(self, mine: Book) -> None:
        before = state_tag(mine)
        mine.name = "mine"
        assert state_tag(mine) == before
        mine.save()
        assert state_tag(mine) == state_tag(Book.objects.get()) != before

    def test_it_does_not_heed_fields_in_which_the_last_wins(self) -> None:
        Counter.objects.create()
        before = state_tag(Counter.objects.get())
        Counter.objects.update(seen=5)
        assert state_tag(Counter.objects.get()) == before
        Counter.objects.update(total=5)
        assert state_tag(Counter.objects.get()) != before

    def test_what_was_saved_has_the_tag_of_what_is_read(self) -> None:
        moment = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
        made = Everything.objects.create(
            text="t", number="5", amount=Decimal("1.5"), ratio=1, yes=1, day="2024-05-01", moment=moment,
            hour="12:00", span=timedelta(1), raw=b"raw", key="12345678123456781234567812345678", address="::1",
            data={"b": 1, "a": [1, 2]}, cover="a.txt",
        )  # fmt: skip
        assert state_tag(made) == state_tag(Everything.objects.get())

    def test_an_empty_text_is_not_nothing(self) -> None:
        one, two = Everything.objects.create(text=None), Everything.objects.create(text="")
        two.pk = one.pk
        assert state_tag(one) != state_tag(two)

    def test_deferred_fields_count(self, book: Book) -> None:
        assert state_tag(Book.objects.only("status").get()) == state_tag(Book.objects.get())
