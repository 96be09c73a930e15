"""Values are kept, compared and shown."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import models
from django.test import override_settings
from guarded.library.models import Author, Book, Everything

from interlock.django.guarded.forms import shown
from interlock.django.guarded.values import freeze, same, thaw


class TestKeeping:
    def test_what_can_be_changed_in_place_is_kept_as_it_was(self) -> None:
        value = {"a": [1, 2]}
        kept = freeze(value)
        value["a"].append(3)
        assert thaw(kept) == {"a": [1, 2]}
        thaw(kept)["a"].append(4)
        assert thaw(kept) == {"a": [1, 2]}

    def test_what_can_not_change_is_kept_itself(self) -> None:
        class Text(str):
            """A subclass of str, like the members of TextChoices."""

        for value in (None, 5, "text", Text("text"), models.F("name")):
            assert freeze(value) is value

    def test_buffers_are_kept_as_bytes(self) -> None:
        assert freeze(memoryview(b"raw")) == freeze(bytearray(b"raw")) == b"raw"


class TestComparing:
    def field(self, name: str) -> Any:
        return Everything._meta.get_field(name)

    def test_buffers_are_compared_by_what_is_in_them(self) -> None:
        assert same(self.field("raw"), b"raw", memoryview(b"raw"))
        assert not same(self.field("raw"), b"raw", bytearray(b"Raw"))

    def test_members_of_choices_are_their_values(self) -> None:
        class Status(models.TextChoices):
            FREE = "free"

        assert same(Book._meta.get_field("status"), "free", Status.FREE)

    @pytest.mark.parametrize(
        ("one", "other", "ordered", "unordered"),
        [
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False, True),
            ({"a": (1, 2)}, {"a": [1, 2]}, True, True),
            ({1: "a", "b": 1}, {"1": "a", "b": 1}, True, True),
            ({"a": {"b": [1]}}, {"a": {"b": [True]}}, False, False),
            ([1], (1,), True, True),
            (1, True, False, False),
        ],
    )
    def test_json_is_compared_as_it_would_be_written(
        self, one: Any, other: Any, ordered: bool, unordered: bool
    ) -> None:
        assert same(self.field("data"), one, other) is ordered
        assert same(self.field("data"), one, other, ordered=False) is unordered

    def test_what_can_not_be_written_is_the_error_of_the_save(self) -> None:
        with pytest.raises(TypeError, match="not JSON serializable"):
            same(self.field("data"), {"a": 1}, {"a": threading.Event()})

    def test_expressions_are_like_nothing_else(self) -> None:
        one, other = models.F("number"), models.F("number")
        assert same(self.field("number"), one, one)
        assert not same(self.field("number"), one, other)


class TestShowing:
    @pytest.mark.parametrize(
        ("field", "value", "text"),
        [
            ("yes", True, "yes"),
            ("yes", False, "no"),
            ("yes", None, "nothing"),
            ("text", "", "nothing"),
            ("number", 0, "0"),
            ("ratio", 0.5, "0.5"),
        ],
    )
    def test_a_value_is_a_text(self, field: str, value: Any, text: str) -> None:
        assert shown(Everything._meta.get_field(field), value) == text

    @override_settings(TIME_ZONE="Europe/Athens")
    def test_times_are_local(self) -> None:
        moment = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
        assert shown(Everything._meta.get_field("moment"), moment) == "May 1, 2024, 3 p.m."

    def test_a_related_object_that_is_gone_is_shown_by_its_key(self) -> None:
        field = Book._meta.get_field("author")
        ann = Author.objects.create(name="Ann")
        assert shown(field, ann.pk) == "Ann"
        assert shown(field, 0) == "0"
        assert shown(field, "x") == "x"
