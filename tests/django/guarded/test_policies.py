"""The policies of a model decide about a field that two writers have changed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import models, transaction
from django.test.utils import isolate_apps
from guarded.helpers import refused, save, sql_of
from guarded.library.models import Careless, Counter, Letter

from interlock.django.guarded import (
    LAST_WINS,
    REFUSE,
    CannotMerge,
    Guarded,
    StaleObject,
    added,
    merged_items,
    merged_keys,
    state_tag,
    verify,
)
from interlock.django.guarded.conflicts import OnStale


@pytest.fixture
def mine() -> Counter:
    """A row, as one user has read it."""
    Counter.objects.create(total=10, tags=["red", "blue"], settings={"a": 1, "deep": {"x": 1, "y": 2}}, name="naem")
    return Counter.objects.get()


@pytest.fixture
def theirs(mine: Counter) -> Counter:
    """The same row, as the other user has read it, who saves first."""
    return Counter.objects.get()


def test_where_the_last_wins_nothing_is_checked(mine: Counter, theirs: Counter) -> None:
    save(theirs, seen=2)
    sql = sql_of(save, mine, seen=1)
    assert len(sql) == 1
    assert "seen" not in sql[0].partition("WHERE")[2]
    assert Counter.objects.get().seen == 1


def test_a_merged_instance_goes_on_from_what_it_has_written(mine: Counter, theirs: Counter) -> None:
    mine.tags.append("mine")
    theirs.tags.append("theirs")
    theirs.save()
    mine.save()
    assert mine.tags == ["red", "blue", "theirs", "mine"]
    mine.tags.remove("red")
    assert len(sql_of(mine.save)) == 1
    assert Counter.objects.get().tags == ["blue", "theirs", "mine"]


def test_a_merge_is_asked_only_when_two_have_changed_the_field(mine: Counter, theirs: Counter) -> None:
    mine.total += 5
    theirs.tags.append("theirs")
    theirs.save()
    assert len(sql_of(mine.save)) == 1
    counter = Counter.objects.get()
    assert (counter.total, counter.tags) == (15, ["red", "blue", "theirs"])


def test_what_can_not_be_merged_is_refused(mine: Counter, theirs: Counter) -> None:
    mine.settings["a"] = 2
    theirs.settings["a"] = 3
    theirs.save()
    assert set(refused(mine.save).fields) == {"settings"}


def test_one_refused_field_refuses_all(mine: Counter, theirs: Counter) -> None:
    save(theirs, total=12, name="theirs")
    assert set(refused(save, mine, total=15, name="mine", seen=9).fields) == {"name"}
    counter = Counter.objects.get()
    assert (counter.total, counter.name, counter.seen) == (12, "theirs", 0)
    assert (mine.total, mine.name, mine.seen) == (15, "mine", 9)


def test_the_error_of_a_merge_function_comes_out(
    monkeypatch: pytest.MonkeyPatch, mine: Counter, theirs: Counter
) -> None:
    def broken(original: Any, mine: Any, theirs: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setitem(Counter.on_stale, "name", broken)
    del Counter._guarded_plan
    try:
        save(theirs, name="theirs")
        with pytest.raises(ZeroDivisionError):
            save(mine, name="mine")
    finally:
        del Counter._guarded_plan
    assert Counter.objects.get().name == "theirs"


@pytest.fixture
def stamps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[OnStale], tuple[Letter, Letter]]]:
    """Gives the model of letters, whose field `stamp` computes its values, a policy; returns two of one row."""

    def pair_of(policy: OnStale) -> tuple[Letter, Letter]:
        monkeypatch.setattr(Letter, "on_stale", policy, raising=False)
        vars(Letter).get("_guarded_plan") and delattr(Letter, "_guarded_plan")
        Letter.objects.create(subject="naem")
        Letter.objects.update(stamp=11)  # set it, since Django 6.0 calls the field twice for an insert
        return Letter.objects.get(), Letter.objects.get()

    yield pair_of
    monkeypatch.undo()
    delattr(Letter, "_guarded_plan")


def test_a_field_that_computes_its_value_is_in_nobodys_way(
    stamps: Callable[[OnStale], tuple[Letter, Letter]],
) -> None:
    mine, theirs = stamps({})
    theirs.save()
    save(mine, subject="mine")
    assert (mine.stamp, Letter.objects.get().stamp) == (12, 12)


def test_a_policy_that_names_a_computed_field_applies(
    stamps: Callable[[OnStale], tuple[Letter, Letter]],
) -> None:
    mine, theirs = stamps({"stamp": added})
    tag = state_tag(mine)
    theirs.save()
    assert state_tag(theirs) != tag
    mine.save()
    assert (mine.stamp, Letter.objects.get().stamp) == (13, 13)  # both saves have raised it
    mine, theirs = Letter.objects.get(), Letter.objects.get()
    theirs.save()
    with pytest.raises(StaleObject) as caught, transaction.atomic():
        verify(mine)
    assert set(caught.value.fields) == {"stamp"}


def test_a_policy_may_refuse_a_changed_computed_field(
    stamps: Callable[[OnStale], tuple[Letter, Letter]],
) -> None:
    mine, theirs = stamps({"stamp": REFUSE})
    theirs.save()
    assert set(refused(save, mine, subject="mine").fields) == {"stamp"}
    assert Letter.objects.get().subject == "naem"


def test_the_last_wins_in_a_whole_model() -> None:
    Careless.objects.create(name="read", number=1)
    mine, theirs = Careless.objects.get(), Careless.objects.get()
    save(theirs, name="theirs", number=2)
    save(mine, name="mine")
    careless = Careless.objects.get()
    assert (careless.name, careless.number) == ("mine", 2)


@pytest.mark.parametrize(
    ("original", "mine", "theirs", "merged"),
    [(10, 15, 12, 17), (10, 5, 12, 7), (None, 5, None, 5), (None, 5, 3, 8), (0, 0.5, 1, 1.5)],
)
def test_numbers_are_added(original: Any, mine: Any, theirs: Any, merged: Any) -> None:
    assert added(original, mine, theirs) == merged


def test_a_number_that_was_cleared_is_not_added() -> None:
    with pytest.raises(CannotMerge):
        added(1, None, 2)


@pytest.mark.parametrize(
    ("original", "mine", "theirs", "merged"),
    [
        (["a"], ["a", "b"], ["a", "c"], ["a", "c", "b"]),
        (["a", "b"], ["a"], ["a", "b", "c"], ["a", "c"]),
        (["a", "b"], [], ["b"], []),
        (None, ["a"], ["b"], ["b", "a"]),
        (["a"], None, ["a", "b"], ["b"]),
        ([], ["a", "a"], ["a"], ["a"]),
        ([{"x": 1}], [{"x": 1}, {"y": 2}], [], [{"y": 2}]),
    ],
)
def test_items_are_merged(original: Any, mine: Any, theirs: Any, merged: Any) -> None:
    assert merged_items(original, mine, theirs) == merged


@pytest.mark.parametrize(
    ("original", "mine", "theirs", "merged"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 1, "c": 3, "b": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": 1, "b": 3}, {"b": 3}),
        ({"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"x": 2, "y": 1}}, {"a": {"x": 1, "y": 2}}, {"a": {"x": 2, "y": 2}}),
        (None, {"a": 1}, {"b": 1}, {"b": 1, "a": 1}),
        ({}, {"a": {"x": 1}}, {"a": {"y": 1}}, {"a": {"y": 1, "x": 1}}),
    ],
)
def test_keys_are_merged(original: Any, mine: Any, theirs: Any, merged: Any) -> None:
    assert merged_keys(original, mine, theirs) == merged


@pytest.mark.parametrize(
    ("original", "mine", "theirs"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}),
        ({"a": 1}, {}, {"a": 3}),
        ({"a": 1}, {"a": True}, {"a": 3}),
        ({"a": 1}, {"a": 2}, {}),
        ({}, {"a": 1}, {"a": 2}),
        ({"a": {}}, {"a": {"x": 1}}, {"a": {"x": 2}}),
        ({}, ["a"], {}),
    ],
)
def test_keys_that_both_have_changed_are_not_merged(original: Any, mine: Any, theirs: Any) -> None:
    with pytest.raises(CannotMerge):
        merged_keys(original, mine, theirs)


@isolate_apps("guarded.library")
def test_policies_are_inherited_field_by_field() -> None:
    class Base(Guarded, models.Model):
        on_stale = {"a": LAST_WINS, "b": added}
        a = models.IntegerField()
        b = models.IntegerField()

        class Meta:
            abstract = True
            app_label = "library"

    class Child(Base):
        on_stale = {"b": LAST_WINS, "*": merged_items}
        c = models.IntegerField()

    class Strict(Base):
        on_stale = REFUSE

    class Unguarded(models.Model):
        on_stale = {"d": added}
        d = models.IntegerField()

        class Meta:
            abstract = True
            app_label = "library"

    class Late(Guarded, Unguarded):
        class Meta:
            app_label = "library"

    from interlock.django.guarded.model_fields import plan_of

    policies = plan_of(Child).policies
    assert [policies[name] for name in "abc"] == [LAST_WINS, LAST_WINS, merged_items]
    assert {plan_of(Strict).policies[name] for name in "ab"} == {REFUSE}
    assert plan_of(Late).policies["d"] is added


@isolate_apps("guarded.library")
def test_the_system_check_explains_a_wrong_policy() -> None:
    class Wrong(Guarded, models.Model):
        on_stale = {"nmae": LAST_WINS, "name": "last", "id": REFUSE}
        name = models.CharField(max_length=10)

        class Meta:
            app_label = "library"

    found = [each for each in Wrong.check() if each.id.startswith("interlock.")]
    assert [(each.id, each.msg) for each in found] == [
        ("interlock.E101", "on_stale names 'nmae', which is not a field that a save of the model writes."),
        ("interlock.E102", "on_stale gives 'name' the value 'last', which is not a policy."),
        ("interlock.E101", "on_stale names 'id', which is not a field that a save of the model writes."),
    ]


def test_the_system_check_finds_no_fault_with_what_is_right() -> None:
    assert [each for each in run_checks() if each.id and each.id.startswith("interlock.E10")] == []
