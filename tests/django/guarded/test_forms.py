"""Two people edit one object with a form, and no change is lost."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django import forms
from django.core.files.uploadedfile import SimpleUploadedFile
from guarded.helpers import refused, save
from guarded.library.models import Author, Book, Counter, Everything, Letter, PlainBook
from guarded.pages import BookForm, late, page_of, saved, sent, shown

from interlock.django.guarded.forms import READ, GuardedModelForm, from_text
from interlock.django.guarded.model_fields import plan_of


class TestUntouched:
    def test_what_its_reader_did_not_touch_is_left_as_it_is_now(self, book: Book) -> None:
        bob = Author.objects.create(name="Bob")
        form = late({"name": "name"}, {"status": "free", "author": bob, "due": None, "cover": "theirs.txt"})
        assert form.is_valid(), form.errors
        assert form.changed_data == ["name"]
        found = saved(form)
        assert (found.name, found.status, found.due, found.cover.name) == ("name", "free", None, "theirs.txt")
        assert found.author == bob

    def test_a_form_without_touch_changes_nothing(self, book: Book) -> None:
        form = sent(shown())
        assert form.is_valid(), form.errors
        assert not form.has_changed()
        assert saved(form).due.microsecond == 123456

    def test_the_reader_never_sees_the_hidden_field_in_the_data(self, book: Book) -> None:
        form = sent(shown())
        assert form.is_valid()
        assert READ not in form.cleaned_data

    def test_two_that_have_made_the_same_change_agree(self, book: Book) -> None:
        saved(late({"name": "name"}, {"name": "name"}))


class TestConflict:
    @pytest.fixture
    def form(self, book: Book) -> Any:
        """A form whose name is in conflict."""
        return late({"name": "mine", "status": "free"}, {"name": "<theirs>", "notes": "noted"})

    @pytest.fixture
    def page(self, form: Any) -> dict[str, Any]:
        """The page that asks about it."""
        return page_of(form)

    def test_it_shows_both_values_and_saves_nothing(self, form: Any) -> None:
        assert not form.is_valid()
        assert set(form.errors) == {"name"}
        html = form.as_p()
        assert "from “naem” to “&lt;theirs&gt;”" in html
        assert re.search(r'<input type="radio" name="interlock_keep_name" value="mine">\s*keep mine: “mine”', html)
        assert '<input type="radio" name="interlock_keep_name" value="theirs">' in html
        assert form["name"].value() == "mine"
        assert form["status"].value() == "free"
        assert form.errors.as_data()["name"][0].code == "stale"

    @pytest.mark.parametrize(("answer", "name"), [("mine", "mine"), ("theirs", "<theirs>")])
    def test_the_reader_chooses(self, page: dict[str, Any], answer: str, name: str) -> None:
        found = saved(sent({**page, "interlock_keep_name": answer}))
        assert (found.name, found.status, found.notes) == (name, "free", "noted")

    def test_the_reader_must_choose(self, page: dict[str, Any]) -> None:
        form = sent(page)
        assert set(form.errors) == {"name"}
        form = sent({**page_of(form), "interlock_keep_name": "perhaps"})
        assert set(form.errors) == {"name"}

    def test_the_reader_types_their(self, page: dict[str, Any]) -> None:
        form = sent({**page, "name": "<theirs>"})
        assert form.is_valid(), form.errors

    def test_a_third_change_is_asked_anew(self, page: dict[str, Any]) -> None:
        Book.objects.update(name="third")
        form = sent({**page, "interlock_keep_name": "mine"})
        assert not form.is_valid()
        assert "to “third”" in form.as_p()
        form = sent({**page_of(form), "interlock_keep_name": "mine"})
        assert form.is_valid()

    def test_their_is_what_it_is_now(self, page: dict[str, Any]) -> None:
        Book.objects.update(name="third")
        assert saved(sent({**page, "interlock_keep_name": "theirs"})).name == "third"

    def test_another_error_forgets_no_choice(self, page: dict[str, Any]) -> None:
        form = sent({**page, "interlock_keep_name": "theirs", "copies": "many"})
        assert set(form.errors) == {"name", "copies"}
        assert '<input type="radio" name="interlock_keep_name" value="theirs" checked>' in form.as_p()
        found = saved(sent({**page_of(form), "interlock_keep_name": "theirs", "copies": "3"}))
        assert (found.name, found.copies, found.notes) == ("<theirs>", 3, "noted")

    def test_a_field_with_an_error_is_asked_once_it_is_right(self, book: Book) -> None:
        form = late({"notes": "wrong"}, {"notes": "theirs"})
        assert form.errors["notes"] == ["wrong notes"]
        form = sent({**page_of(form), "notes": "right"})
        assert "theirs" in str(form.errors["notes"])

    def test_a_prefix_keeps_forms_apart(self, book: Book) -> None:
        page = page_of(BookForm(instance=Book.objects.get(), prefix="b"))
        Book.objects.update(name="theirs")
        form = BookForm({**page, "b-name": "mine"}, instance=Book.objects.get(), prefix="b")
        assert 'name="b-interlock_keep_name"' in form.as_p()
        form = BookForm({**page_of(form), "b-interlock_keep_name": "mine"}, instance=Book.objects.get(), prefix="b")
        assert form.is_valid()

    @pytest.mark.parametrize(
        ("field", "mine", "theirs", "texts"),
        [
            ("status", "free", "", ["In use", "On the shelf"]),
            ("copies", "1000", 2000, ["“1”", "1000", "2000"]),
            ("due", "2024-06-01 12:00:00", None, ["May 1, 2024", "June 1, 2024", "nothing"]),
            (
                "tags",
                '["mine"]',
                ["theirs"],
                ["[&#x27;red&#x27;]", "[&#x27;mine&#x27;]", "theirs"],
            ),
            ("notes", "m" * 400, "t" * 400, ["nothing", "m" * 300 + "…", "t" * 300 + "…"]),
        ],
    )
    def test_values_are_shown_as_people_read_them(
        self, book: Book, field: str, mine: Any, theirs: Any, texts: list[str]
    ) -> None:
        html = str(late({field: mine}, {field: theirs}).errors[field])
        assert all(text in html for text in texts), html

    def test_related_objects_are_shown_by_their_names(self, book: Book) -> None:
        ann, bob = (Author.objects.create(name=name) for name in ("Ann", "Bob"))
        form = late({"author": str(ann.pk)}, {"author": bob})
        assert "to “Bob”" in str(form.errors["author"])
        assert "keep mine: “Ann”" in str(form.errors["author"])
        assert saved(sent({**page_of(form), "interlock_keep_author": "mine"})).author == ann

    def test_an_uploaded_file_is_asked_about_too(self, book: Book) -> None:
        page = shown()
        Book.objects.update(cover="theirs.txt")
        form = sent(page, cover=SimpleUploadedFile("mine.txt", b"mine"))
        assert "theirs.txt" in str(form.errors["cover"])
        assert "mine.txt" in str(form.errors["cover"])
        form = sent({**page_of(form), "interlock_keep_cover": "mine"}, cover=SimpleUploadedFile("mine.txt", b"mine"))
        assert saved(form).cover.name.startswith("mine")


class TestPolicies:
    class CounterForm(GuardedModelForm):
        class Meta:
            model = Counter
            fields = "__all__"

    def test_merges_and_last_wins_need_no_question(self) -> None:
        Counter.objects.create(total=10, settings={"a": 1}, name="read")
        mine = {"total": "15", "seen": "1", "tags": '["mine"]', "settings": '{"a": 1, "mine": 1}'}
        theirs = {"total": 12, "seen": 7, "tags": ["theirs"], "settings": {"a": 1, "theirs": 1}}
        found = saved(late(mine, theirs, self.CounterForm, Counter))
        assert (found.total, found.seen, found.tags) == (17, 1, ["theirs", "mine"])
        assert found.settings == {"a": 1, "mine": 1, "theirs": 1}

    def test_a_related_object_is_not_merged_but_asked(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        ann, bob = (Author.objects.create(name=name) for name in ("Ann", "Bob"))
        monkeypatch.setitem(plan_of(Book).policies, "author_id", max)
        assert set(late({"author": str(ann.pk)}, {"author": bob}).errors) == {"author"}


class TestAtTheLastMoment:
    """Another user changes the object between the validation of the form and its save."""

    @pytest.fixture
    def stale(self, book: Book) -> Callable[[], Any]:
        form = sent({**shown(), "name": "mine"})
        assert form.is_valid()
        Book.objects.update(name="theirs")
        refused(form.save)
        return form

    def test_the_form_is_checked_again_and_asks(self, stale: Any) -> None:
        stale.recheck()
        assert set(stale.errors) == {"name"}
        assert saved(sent({**page_of(stale), "interlock_keep_name": "mine"})).name == "mine"

    def test_it_can_be_saved_if_there_is_no_conflict_any_more(self, stale: Any) -> None:
        Book.objects.update(name="naem")
        stale.recheck()
        assert saved(stale).name == "mine"

    def test_a_deleted_object_is_told(self, stale: Any) -> None:
        Book.objects.all().delete()
        stale.recheck()
        assert "deleted" in str(stale.non_field_errors())


class TestHiddenField:
    def test_a_page_of_another_object_is_refused(self, book: Book) -> None:
        other = Book.objects.create(name="other")
        page = page_of(BookForm(instance=other))
        other.delete()
        form = sent({**shown(), READ: page[READ], "name": "mine"})
        assert "open the page anew" in str(form.non_field_errors())
        assert not sent(page_of(form)).is_valid()

    def test_a_forged_page_is_refused(self, book: Book) -> None:
        assert not sent({**shown(), READ: "forged"}).is_valid()

    def test_a_page_without_it_is_a_plain_form(self, book: Book) -> None:
        page = shown()
        del page[READ]
        Book.objects.update(status="free")
        assert saved(sent({**page, "name": "mine"})).name == "mine"

    def test_a_new_object_has_nothing_to_take_along(self) -> None:
        form = BookForm()
        assert form[READ].value() == ""
        assert saved(BookForm({**page_of(form), "name": "new", "tags": "[]"})).name == "new"

    def test_a_model_that_is_not_guarded_has_a_plain_form(self) -> None:
        form_class = forms.modelform_factory(PlainBook, form=GuardedModelForm, fields=["name"])
        PlainBook.objects.create(name="naem")
        page = {**shown(form_class, PlainBook), "name": "mine"}
        assert page[READ] == ""
        PlainBook.objects.update(name="theirs")
        assert sent(page, form_class, PlainBook).is_valid()

    def test_a_form_may_leave_it_out(self, book: Book) -> None:
        class Without(BookForm):
            interlock_read = None

        assert READ not in Without(instance=book).fields

    def test_every_kind_of_value_comes_back_as_it_was(self) -> None:
        form_class = forms.modelform_factory(Everything, form=GuardedModelForm, fields="__all__")
        Everything.objects.create(
            text="t", number=5, amount="1.5", ratio=0.1, yes=True, day="2024-05-01", moment="2024-05-01 12:00Z",
            hour="12:00:00.5", span=timedelta(1, 7384.5), key="12345678123456781234567812345678", address="::1",
            data={"b": [1, None]},
        )  # fmt: skip
        form = sent({READ: shown(form_class, Everything)[READ]}, form_class, Everything)
        form.full_clean()
        taken = form._sent["shown"]
        assert len(taken) == 14
        found = Everything.objects.get()
        for name, (text,) in taken.items():
            assert from_text(Everything._meta.get_field(name), text) == getattr(found, name), name

    def test_a_computed_field_is_no_question(self) -> None:
        form_class = forms.modelform_factory(Letter, form=GuardedModelForm, fields=["secret", "subject"])
        Letter.objects.create(secret="secret")
        page = {**shown(form_class, Letter), "subject": "mine"}
        save(Letter.objects.get(), secret="theirs")
        assert saved(sent(page, form_class, Letter)).secret == "theirs"
