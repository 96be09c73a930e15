"""Guarded models with signals, their own `save` methods, other mixins, asyncio and other libraries."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, migrations, models
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import OperationWriter
from django.db.models.signals import post_save, pre_save
from django.test.utils import isolate_apps
from guarded.helpers import refused, save
from guarded.library.models import Author, Book, Counter, Magazine, OldBook, OldRemembered, Place, Remembered, Ticket

from interlock.django.guarded import Guarded, StaleObject, written


class TestSignals:
    @pytest.fixture(autouse=True)
    def heard(self) -> Iterator[list[tuple[str, Any]]]:
        heard: list[tuple[str, Any]] = []

        def before(instance: Book, update_fields: Any, **_: Any) -> None:
            heard.append(("before", update_fields))
            instance.notes = instance.name.upper()

        def after(instance: Book, update_fields: Any, created: bool, **_: Any) -> None:
            heard.append(("after", update_fields))
            heard.append(("written", written(instance)))
            heard.append(("created", created))
            if instance.status == "again":
                save(instance, status="done")

        pre_save.connect(before, sender=Book)
        post_save.connect(after, sender=Book)
        yield heard
        pre_save.disconnect(before, sender=Book)
        post_save.disconnect(after, sender=Book)

    def test_signals_report_the_requested_and_the_written_fields(self, heard: list[tuple[str, Any]]) -> None:
        book = Book.objects.create(name="a")
        heard.clear()
        save(book, status="free")
        assert heard == [("before", None), ("after", None), ("written", {"status", "changed"}), ("created", False)]
        heard.clear()
        book.name = "b"
        book.save(update_fields=["name"])
        assert heard == [
            ("before", {"name"}), ("after", {"name"}), ("written", {"name"}), ("created", False),
        ]  # fmt: skip

    def test_what_a_receiver_changes_before_the_save_is_written(self) -> None:
        book = Book.objects.create(name="a")
        save(book, name="b")
        assert Book.objects.get().notes == "B"

    def test_a_receiver_may_save_again(self) -> None:
        book = Book.objects.create(name="a")
        save(book, status="again")
        assert Book.objects.get().status == "done"

    def test_none_is_sent_when_a_save_was_refused(self, heard: list[tuple[str, Any]]) -> None:
        mine = Book.objects.get(pk=Book.objects.create(name="a").pk)
        Book.objects.update(name="theirs")
        heard.clear()
        refused(save, mine, name="mine")
        assert [name for name, _ in heard] == ["before"]


class TestOverriddenSave:
    def test_what_an_overridden_save_changes_is_written(self) -> None:
        class Shouting(Book):
            class Meta:
                proxy = True
                app_label = "library"

            def save(self, *args: Any, **kwargs: Any) -> None:
                self.notes = self.name.upper()
                super().save(*args, **kwargs)

        Book.objects.create(name="a")
        mine = Shouting.objects.get()
        save(mine, name="b")
        assert Book.objects.get().notes == "B"


def test_asave_is_guarded() -> None:
    Book.objects.create(name="naem")

    async def story() -> None:
        try:
            await both()
        finally:
            await sync_to_async(connections.close_all)()  # of the thread that asyncio's queries run in

    async def both() -> None:
        mine, theirs = await Book.objects.aget(), await Book.objects.aget()
        theirs.name = "theirs"
        await theirs.asave()
        mine.name = "mine"
        with pytest.raises(StaleObject):
            await mine.asave()
        await mine.arefresh_from_db()
        mine.name = "mine"
        await mine.asave()

    asyncio.run(story())
    assert Book.objects.get().name == "mine"


class TestMigrations:
    def test_a_guarded_model_needs_no_migration(self) -> None:
        with isolate_apps("guarded.library"):

            class Plain(models.Model):
                name = models.CharField(max_length=10)

                class Meta:
                    app_label = "library"
                    db_table = "same"

        with isolate_apps("guarded.library"):

            class Safe(Guarded, models.Model):
                name = models.CharField(max_length=10)

                class Meta:
                    app_label = "library"
                    db_table = "same"

        plain, safe = ModelState.from_model(Plain), ModelState.from_model(Safe)
        assert plain.options == safe.options
        assert list(plain.fields) == list(safe.fields)

    @pytest.mark.parametrize("model", [Book, Magazine, OldBook, Place, Ticket])
    def test_they_name_no_class_of_interlock(self, model: type[models.Model]) -> None:
        state = ModelState.from_model(model)
        made = migrations.CreateModel(state.name, list(state.fields.items()), state.options, state.bases)
        text, imports = OperationWriter(made).serialize()
        assert "interlock" not in text + "".join(imports)

    def test_those_that_name_guarded_still_run(self) -> None:
        state = ProjectState()
        fields = [("id", models.BigAutoField(primary_key=True)), ("total", models.IntegerField(default=0))]
        options = {"db_table": Counter._meta.db_table, "managed": False}
        state.add_model(ModelState("library", "Counter", fields, options, (Guarded, models.Model)))
        historical: Any = state.apps.get_model("library", "Counter")
        Counter.objects.create(total=5)
        mine, theirs = historical.objects.get(), historical.objects.get()
        save(theirs, total=6)
        refused(save, mine, total=7)


@pytest.mark.parametrize("model", [Remembered, OldRemembered])
def test_a_model_with_its_own_from_db_is_guarded_all_the_same(model: Any) -> None:
    model.objects.create(name="old")
    mine, theirs = model.objects.get(), model.objects.get()
    assert mine.loaded["name"] == "old"
    save(theirs, number=5)
    save(mine, name="mine")
    assert model.objects.values_list("name", "number").get() == ("mine", 5)
    refused(save, theirs, name="theirs")


def test_a_model_of_another_package_is_guarded_by_a_proxy() -> None:
    with isolate_apps("guarded.library"):

        class GuardedAuthor(Guarded, Author):
            class Meta:
                app_label = "library"
                proxy = True

        Author.objects.create(name="naem")
        mine, theirs = GuardedAuthor.objects.get(), Author.objects.get()
        assert GuardedAuthor._meta.ordering == ["name"]
    save(theirs, name="theirs")
    refused(save, mine, name="mine")


def test_it_can_be_imported_before_the_settings_are_made() -> None:
    script = "from interlock.django.guarded import Guarded, StaleObject; print(Guarded.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("Guarded\n", 0), done.stderr
