"""A guarded instance keeps the stored value: rounded, truncated, padded; a single writer never conflicts."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from guarded.helpers import refused, save, sql_of
from guarded.library.models import Adapting, AdaptingAdded, AdaptingPlain

from interlock.django.guarded import changes, state_tag, verify

MOMENT = datetime(2024, 5, 1, 12, 0, 0, 600_000, tzinfo=UTC)
OTHERS: dict[str, Any] = {"moment": MOMENT.replace(year=2030)}
GIVEN: list[tuple[str, list[Any]]] = [
    ("price", [Decimal("1.005"), Decimal("2.015"), Decimal("2.025"), "3.005", 4.005, Decimal("5")]),
    ("amount", [Decimal("12345678901234567890.1234567891"), Decimal("0.00000000005"), Decimal("1e-20")]),
    ("ratio", [0.1, "0.2", 1 / 3, 7]),
    ("code", ["a", "a ", "b  ", "", "abcdefgh"]),
    ("moment", [MOMENT, MOMENT.replace(microsecond=1), MOMENT.replace(microsecond=0)]),
    ("data", [1e22, {"a": [1e-9, 1.5e300]}, {"a": 1.0}, [10.0**20]]),
]
if settings.DATABASE != "mariadb":  # which refuses them
    GIVEN.append(("ratio", [math.nan, 1.0, math.nan, math.inf]))


@pytest.mark.parametrize(("field", "values"), GIVEN)
class TestOneWriter:
    def test_saves_again_and_again(self, field: str, values: list[Any]) -> None:
        mine = Adapting(**{field: values[0]})
        mine.save()
        for value in [*values[1:], *values]:
            save(mine, **{field: value})
            mine.name += "x"
            mine.save()
        plain = AdaptingPlain.objects.create(**{field: values[-1]})
        mine, plain = Adapting.objects.get(), AdaptingPlain.objects.get()
        assert repr(getattr(mine, field)) == repr(getattr(plain, field))

    def test_has_changed_nothing_by_saving(self, field: str, values: list[Any]) -> None:
        for value in values:
            mine = Adapting(**{field: value})
            mine.save()
            assert changes(mine) == {}
            assert sql_of(mine.save) == []
            assert state_tag(mine) == state_tag(Adapting.objects.get(pk=mine.pk))
            with transaction.atomic():
                verify(mine)

    def test_loses_to_a_second_one(self, field: str, values: list[Any]) -> None:
        mine = Adapting(**{field: values[0]})
        mine.save()
        theirs = Adapting.objects.get()
        save(theirs, **{field: OTHERS.get(field, 8)})
        error = refused(save, mine, **{field: MOMENT.replace(year=2031) if field == "moment" else 9})
        assert set(error.fields) == {field}

    def test_rolls_back_to_what_was_held_before(self, field: str, values: list[Any]) -> None:
        mine = Adapting(**{field: values[0]})
        mine.save()
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            save(mine, **{field: values[1]})
            raise ZeroDivisionError
        mine.save()
        save(mine, **{field: values[0]})


def test_what_is_added_does_not_drift() -> None:
    """As in a plain model: the sum uses the given values, though the column rounds each one."""
    mine, plain = AdaptingAdded.objects.create(), AdaptingPlain.objects.create()
    for _ in range(10):
        for each in (mine, plain):
            each.price += Decimal("0.004")
            each.save()
    assert AdaptingAdded.objects.get().price == AdaptingPlain.objects.get().price


def test_what_two_add_is_added_to_what_is_held() -> None:
    mine = AdaptingAdded.objects.create(price=Decimal("1.006"))
    theirs = AdaptingAdded.objects.get()
    theirs.price += 1
    theirs.save()
    mine.price += 1
    mine.save()
    assert AdaptingAdded.objects.get().price == Decimal("3.01")


def test_values_that_are_held_as_given_need_no_query() -> None:
    mine = Adapting.objects.create()
    assert len(sql_of(save, mine, price=Decimal("1.25"), ratio=0.1, name="name", data={"a": [1, 2.5, "x"]})) == 1
