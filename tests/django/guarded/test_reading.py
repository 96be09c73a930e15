"""An instance keeps the values that were read, for each way to read it."""

import copy
import pickle
from collections.abc import Iterator

import django
import pytest
from django.core import serializers
from django.db import connections, models, transaction
from django.test import override_settings
from guarded.helpers import refused, save, sql_of, statements
from guarded.library.models import Author, Book, Everything, OldBook

from interlock.django.guarded import changes, verify

pytestmark = pytest.mark.usefixtures("book")


def refuses(mine: Book) -> None:
    """Check that the save of an instance that was read before is refused because of `name`."""
    Book.objects.update(name="theirs")
    refused(save, mine, name="mine")
    assert Book.objects.get().name == "theirs"


def keeps_others(mine: Book) -> None:
    """Check that an instance that was read before writes only `name`."""
    Book.objects.update(status="free", notes="theirs")
    assert len(sql_of(save, mine, name="mine")) == 1
    book = Book.objects.get()
    assert (book.name, book.status, book.notes) == ("mine", "free", "theirs")


READINGS = {
    "get": lambda: Book.objects.get(),
    "a slice": lambda: next(iter(Book.objects.all()[:1])),
    "iterator": lambda: next(Book.objects.iterator()),
    "in_bulk": lambda: next(iter(Book.objects.in_bulk().values())),
    "raw": lambda: next(iter(Book.objects.raw("SELECT * FROM library_book"))),
    "raw, some columns": lambda: next(iter(Book.objects.raw("SELECT name, id FROM library_book"))),
    "a proxy": lambda: OldBook.objects.get(),
    "only": lambda: Book.objects.only("name").get(),
    "defer": lambda: Book.objects.defer("status").get(),
    "a relation": lambda: Author.objects.get().book_set.get(),
    "a prefetched relation": lambda: Author.objects.prefetch_related("book_set").get().book_set.all()[0],
    "select_related": lambda: Book.objects.select_related("author").get(),
    "annotated": lambda: Book.objects.annotate(number=models.Count("author")).get(),
    "get_or_create": lambda: Book.objects.get_or_create(name="naem")[0],
    "update_or_create": lambda: Book.objects.update_or_create(name="naem", defaults={"copies": 5})[0],
    "a pickle": lambda: pickle.loads(pickle.dumps(Book.objects.get())),
    "a copy": lambda: copy.copy(Book.objects.get()),
    "a deep copy": lambda: copy.deepcopy(Book.objects.get()),
}


@pytest.mark.parametrize("reading", READINGS)
def test_it_is_refused_what_others_have_changed(reading: str) -> None:
    refuses(READINGS[reading]())


@pytest.mark.parametrize("reading", READINGS)
def test_it_writes_only_what_it_has_changed(reading: str) -> None:
    keeps_others(READINGS[reading]())


class TestDeferred:
    def test_a_deferred_field_is_guarded_from_when_it_is_read(self) -> None:
        mine = Book.objects.only("name").get()
        Book.objects.update(status="lost")
        assert mine.status == "lost"
        Book.objects.update(status="free")
        assert refused(save, mine, status="use").fields["status"].original == "lost"

    def test_a_deferred_field_set_without_a_read_is_written(self) -> None:
        mine = Book.objects.only("name").get()
        Book.objects.update(status="lost")
        save(mine, status="free")
        assert Book.objects.get().status == "free"

    def test_a_deferred_list_that_is_changed_in_place_is_noticed(self) -> None:
        mine = Book.objects.defer("tags").get()
        mine.tags.append("blue")
        mine.save()
        assert Book.objects.get().tags == ["red", "blue"]

    def test_reading_a_deferred_field_leaves_what_was_changed(self) -> None:
        mine = Book.objects.defer("status").get()
        mine.name = "name"
        assert mine.status == "use"
        assert changes(mine) == {"name": ("naem", "name")}
        mine.save()
        assert Book.objects.get().name == "name"

    if django.VERSION >= (6, 1):

        def test_a_field_fetched_for_all_peers_is_guarded_on_each(self) -> None:
            Book.objects.create(name="second")
            one, two = Book.objects.only("name").fetch_mode(models.FETCH_PEERS).order_by("pk")
            assert one.status == "use"
            assert two.status == "use"
            assert changes(two) == {}
            Book.objects.update(status="lost")
            refused(save, two, status="free")
            assert one.author is not None
            assert pickle.loads(pickle.dumps(one)).status == "use"


class TestRefresh:
    def test_a_refreshed_instance_goes_on_from_what_it_has_read(self, mine: Book) -> None:
        Book.objects.update(name="theirs", status="free")
        mine.name = "mine"
        mine.refresh_from_db()
        assert (mine.name, mine.status) == ("theirs", "free")
        assert changes(mine) == {}
        save(mine, name="mine")
        assert Book.objects.get().name == "mine"

    @pytest.mark.parametrize("fields", [["name"], ("name",), {"name"}, iter(["name"])])
    def test_fields_that_were_not_refreshed_stay_as_they_were(self, mine: Book, fields: list[str]) -> None:
        Book.objects.update(name="theirs", status="free")
        mine.name, mine.status = "mine", "lost"
        mine.refresh_from_db(fields=fields)
        assert changes(mine) == {"status": ("use", "lost")}
        assert set(refused(mine.save).fields) == {"status"}

    def test_a_relation_is_refreshed_by_its_name(self, mine: Book) -> None:
        bob = Author.objects.create(name="Bob")
        Book.objects.update(author=bob)
        mine.refresh_from_db(fields=["author"])
        assert mine.author == bob
        assert changes(mine) == {}

    def test_an_instance_made_by_hand_knows_what_it_has_read(self, book: Book) -> None:
        mine = Book(pk=book.pk)
        mine.refresh_from_db()
        keeps_others(mine)

    if django.VERSION >= (5, 1):

        @pytest.mark.parametrize("deferring", [False, True])
        def test_a_refresh_by_a_query_set_knows_what_that_has_read(self, mine: Book, deferring: bool) -> None:
            Book.objects.update(name="theirs", status="free")
            mine.name, mine.status = "mine", "lost"
            rows = Book.objects.defer("status") if deferring else Book.objects.all()
            mine.refresh_from_db(from_queryset=rows)
            assert mine.name == "theirs"
            assert mine.status == ("lost" if deferring else "free")
            assert changes(mine) == ({"status": ("use", "lost")} if deferring else {})

        def test_a_refresh_that_fails_changes_nothing(self, mine: Book) -> None:
            mine.name = "mine"
            with pytest.raises(Book.DoesNotExist):
                mine.refresh_from_db(from_queryset=Book.objects.none())
            assert changes(mine) == {"name": ("naem", "mine")}
            with pytest.raises(Book.DoesNotExist):
                mine.refresh_from_db(from_queryset=Book.objects.filter(name="other"), fields=["name"])
            assert mine.name == "mine"


class TestCopies:
    def test_a_copy_goes_its_own_way(self, mine: Book) -> None:
        other = copy.copy(mine)
        save(mine, name="name")
        assert changes(other) == {}
        refused(save, other, name="other")

    def test_a_pickled_row_keeps_every_kind_of_value(self) -> None:
        Everything.objects.create(raw=b"raw", data={"a": [1]}, amount="1.5")
        mine = pickle.loads(pickle.dumps(Everything.objects.get()))
        assert changes(mine) == {}

    def test_a_row_that_was_saved_under_another_key_is_a_new_one(self, mine: Book) -> None:
        Book.objects.update(name="theirs")
        save(mine, pk=None)
        first, second = Book.objects.order_by("pk")
        assert (first.name, second.name, second.status) == ("theirs", "naem", "use")
        assert len(sql_of(save, mine, status="free")) == 1

    def test_a_row_that_is_saved_over_another_one_is_written_whole(self) -> None:
        other = Book.objects.create(name="other", status="lost")
        mine = Book.objects.get(name="naem")
        save(mine, pk=other.pk)
        assert [each.name for each in Book.objects.all()] == ["naem", "naem"]
        assert Book.objects.get(pk=other.pk).status == "use"

    def test_the_key_as_a_text_is_the_same_key(self, mine: Book) -> None:
        mine.pk = str(mine.pk)
        keeps_others(mine)


class TestOtherDatabases:
    def test_a_row_saved_to_another_database_is_written_whole(self, mine: Book) -> None:
        mine.author = None
        mine.save(using="other")
        copied = Book.objects.using("other").get()
        assert (copied.name, copied.status) == ("naem", "use")
        save(copied, name="copied")
        assert Book.objects.using("other").get().name == "copied"
        assert Book.objects.get().name == "naem"

    def test_each_database_is_guarded(self) -> None:
        Book.objects.using("other").create(name="other", pk=1)
        mine = Book.objects.using("other").get()
        Book.objects.using("other").update(name="theirs", status="free")
        with statements("other") as sql:
            save(mine, copies=2)
        assert len(sql) == 1
        refused(save, mine, name="mine")
        assert Book.objects.using("other").get().status == "free"
        assert "other" in connections


class ReadsOfReplica:
    """A router that sends all reads to a replica."""

    def db_for_read(self, model: type[models.Model], **hints: object) -> str:
        return "replica"

    def db_for_write(self, model: type[models.Model], **hints: object) -> str:
        return "default"

    def allow_relation(self, *objects: object, **hints: object) -> bool:
        return True


class TestReplica:
    """An instance that was read from a replica is guarded when it is saved to the primary."""

    @pytest.fixture(autouse=True)
    def routed(self, book: Book) -> Iterator[None]:
        with override_settings(DATABASE_ROUTERS=[f"{__name__}.ReadsOfReplica"]):
            yield

    @pytest.fixture(params=["get", "only", "defer", "a relation", "a pickle"])
    def mine(self, request: pytest.FixtureRequest) -> Book:
        found: Book = READINGS[request.param]()
        assert found._state.db == "replica"
        return found

    def test_it_is_refused_what_others_have_changed(self, mine: Book) -> None:
        refuses(mine)

    def test_it_writes_only_what_it_has_changed(self, mine: Book) -> None:
        keeps_others(mine)
        keeps_others(mine)

    def test_several_saves_and_reads_go_on_from_each_other(self, mine: Book) -> None:
        save(mine, name="one")
        mine.refresh_from_db(fields=["status"])
        refuses(mine)
        mine.refresh_from_db()
        keeps_others(mine)

    def test_reading_a_deferred_field_keeps_the_others_guarded(self) -> None:
        mine = Book.objects.using("default").defer("notes").get()
        assert mine.notes == ""
        refuses(mine)

    def test_it_is_verified_on_the_primary(self, mine: Book) -> None:
        Book.objects.update(name="theirs")
        with transaction.atomic():
            refused(verify, mine)


class TestUnguarded:
    """Values that were never read can't be compared: these saves are Django's own."""

    def test_an_instance_made_by_hand_is_written_whole(self, book: Book) -> None:
        Book(pk=book.pk, name="by hand").save()
        assert Book.objects.get().name == "by hand"

    def test_fixtures_are_loaded_as_they_are(self) -> None:
        text = serializers.serialize("json", Book.objects.all())
        Book.objects.update(name="theirs", status="free")
        for each in serializers.deserialize("json", text):
            each.save()
        assert (Book.objects.get().name, Book.objects.get().status) == ("naem", "use")

    def test_a_raw_save_of_a_guarded_instance_writes_all(self, mine: Book) -> None:
        Book.objects.update(name="theirs", status="free")
        mine.save_base(raw=True)
        assert (Book.objects.get().name, Book.objects.get().status) == ("naem", "use")
        keeps_others(mine)

    def test_the_first_save_after_bulk_create_writes_all(self) -> None:
        (made,) = Book.objects.bulk_create([Book(name="bulk")])
        made = made if made.pk else Book.objects.get(name="bulk")
        save(made, status="free")
        Book.objects.filter(pk=made.pk).update(name="theirs")
        save(made, status="lost")
        assert Book.objects.get(pk=made.pk).name == "theirs"
