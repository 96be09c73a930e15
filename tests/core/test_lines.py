"""Lines: the one formula, whose turn it is, and what a claim may do after a look at the records."""

from typing import Any

import pytest

from interlock.core.claims import (
    MAX_LABEL,
    MAX_TTL,
    MIN_TTL,
    SEPARATOR,
    WRITER_UNITS,
    checked_at_least,
    checked_count,
    checked_timeout,
    checked_ttl,
    fits,
    keys_of,
    kind_of,
    moment_of,
    namespace_of,
    said,
    shown_text,
)
from interlock.core.errors import InvalidArgument
from interlock.core.pending import Judgement, Record, State, Verdict, judge
from interlock.core.positions import has_room, promotable, watched

ALL = WRITER_UNITS


def record(id: str, state: State = "pending", units: int = 1, capacity: int = 1, ended: bool = False) -> Record:
    """Return a record; the order of the ids is that of the line."""
    return Record(id, id, units, capacity, state, 7 if state == "using" else 0, ended)


@pytest.mark.parametrize(
    ("units", "capacity", "others", "room"),
    [
        (1, 1, [], True),
        (2, 1, [], False),
        (1, 3, [(2, 3)], True),
        (2, 3, [(2, 3)], False),
        (1, 3, [(1, 2)], True),
        (1, 3, [(1, 1)], False),
        (1, 1, [(1, 3)], False),
        (1, ALL, [(1, ALL), (1, ALL)], True),
        (ALL, ALL, [(1, ALL)], False),
    ],
)
def test_there_is_room_while_all_together_stay_within_the_smallest_capacity(
    units: int, capacity: int, others: list[tuple[int, int]], room: bool
) -> None:
    assert fits(units, capacity, others) is room
    assert has_room([record("a", "using", *each) for each in others], units, capacity) is room


def test_turns_come_from_the_head_and_nobody_overtakes() -> None:
    def promoted(*line: Record) -> str:
        return "".join(each.id for each in promotable(line))

    assert promoted(record("a")) == "a"
    assert promoted(record("a"), record("b")) == "a"
    assert promoted(record("a", "using"), record("b")) == ""
    assert promoted(record("a", "using", 1, 3), record("b", units=2, capacity=3), record("c", capacity=3)) == "b"
    assert promoted(record("a", "using", 2, 3), record("b", units=2, capacity=3), record("c", capacity=3)) == ""
    assert promoted(record("a", "using", 1, 2), record("b", capacity=3), record("c", capacity=3)) == "b"


def test_the_first_waiter_watches_the_holders_and_each_other_one_only_who_is_before_it() -> None:
    line = [record("a", "using", 1, 2), record("b", "using", 1, 2), record("c"), record("d"), record("e")]
    assert [[each.id for each in watched(line, index)] for index in (0, 1, 2, 3, 4)] == [
        [], ["a"], ["a", "b"], ["c"], ["d"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([], Judgement(Verdict.GONE, False, 0, None)),
        ([record("b", ended=True)], Judgement(Verdict.GONE, False, 0, None)),
        ([record("a", ended=True), record("c")], Judgement(Verdict.GONE, False, 0, "a")),
        ([record("b", "using"), record("c", ended=True)], Judgement(Verdict.HOLDS, True, 7, "c")),
        ([record("b")], Judgement(Verdict.ENTER, True, 0, None)),
        ([record("b", "queued")], Judgement(Verdict.ENTER, False, 0, None)),
        ([record("a", "using"), record("b")], Judgement(Verdict.BUSY, True, 0, None)),
        ([record("a", "using", ended=True), record("b")], Judgement(Verdict.ENTER, True, 0, "a")),
        ([record("a"), record("b")], Judgement(Verdict.GIVE_WAY, True, 0, None)),
        ([record("a", "queued"), record("b")], Judgement(Verdict.GIVE_WAY, True, 0, None)),
        ([record("b"), record("c")], Judgement(Verdict.NEIGHBOUR, True, 0, None)),
        ([record("b"), record("c", "queued")], Judgement(Verdict.ENTER, True, 0, None)),
        ([record("b"), record("c", "using")], Judgement(Verdict.BUSY, True, 0, None)),
        # Readers pass together, counted units one after the other.
        ([record("a", capacity=ALL), record("b", capacity=ALL)], Judgement(Verdict.ENTER, True, 0, None)),
        ([record("a", capacity=ALL), record("b", "pending", ALL, ALL)], Judgement(Verdict.GIVE_WAY, True, 0, None)),
        ([record("a", "pending", ALL, ALL), record("b", capacity=ALL)], Judgement(Verdict.GIVE_WAY, True, 0, None)),
        ([record("a", capacity=3), record("b", capacity=3)], Judgement(Verdict.GIVE_WAY, True, 0, None)),
        ([record("a", capacity=3), record("b", capacity=ALL)], Judgement(Verdict.GIVE_WAY, True, 0, None)),
        ([record("a", capacity=ALL), record("b", capacity=3)], Judgement(Verdict.GIVE_WAY, True, 0, None)),
        (
            [record("a", capacity=ALL), record("b", capacity=ALL), record("c", "using", ALL, ALL)],
            Judgement(Verdict.GIVE_WAY, True, 0, None),
        ),
        (
            [record("b", capacity=ALL), record("c", "using", ALL, ALL), record("d", capacity=ALL)],
            Judgement(Verdict.BUSY, True, 0, None),
        ),
    ],
)
def test_what_a_claim_may_do_after_a_look(records: list[Record], found: Judgement) -> None:
    assert judge("b", records) == found


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ((True, None), None),
        ((True, -1), None),
        ((True, float("inf")), None),
        ((True, 0), 0.0),
        ((1, 2), 2.0),
        ((False, None), 0.0),
        ((0, -1), 0.0),
    ],
)
def test_a_timeout_is_that_of_threading(given: tuple[Any, Any], seconds: float | None) -> None:
    assert checked_timeout(*given) == seconds


@pytest.mark.parametrize(
    "given",
    [(2, None), (1.0, None), ("yes", None), (True, -0.5), (True, -2), (True, True), (True, "1"), (True, float("nan")),
     (True, 10**400), (False, 0), (False, 1)],
)  # fmt: skip
def test_a_timeout_that_makes_no_sense_is_refused(given: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidArgument):
        checked_timeout(*given)


def test_the_ends_of_what_is_allowed_are_allowed() -> None:
    assert [checked_ttl(MIN_TTL), checked_ttl(MAX_TTL)] == [0.1, 10 * 365 * 86400.0]
    assert [checked_at_least(0, 1), checked_at_least(1, 1.0), checked_at_least(MAX_TTL, None)] == [0, 1, MAX_TTL]
    assert [checked_count(1, "permits"), checked_count(WRITER_UNITS - 1, "permits")] == [1, 2**30 - 1]


@pytest.mark.parametrize("value", [0, -1, WRITER_UNITS, True, 1.0, "1"])
def test_a_count_out_of_its_range_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="permits is a whole number from 1 to 1073741823"):
        checked_count(value, "permits")


@pytest.mark.parametrize("value", [0.09, MAX_TTL + 1, float("nan"), True, "1", None])
def test_a_lease_out_of_its_range_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        checked_ttl(value)


@pytest.mark.parametrize(
    ("at_least", "ttl"), [(-1, None), (MAX_TTL + 1, None), (1.1, 1.0), (True, None), ("1", None), (None, None)]
)
def test_a_shortest_time_out_of_its_range_is_refused(at_least: Any, ttl: float | None) -> None:
    with pytest.raises(InvalidArgument):
        checked_at_least(at_least, ttl)


def test_kinds_keys_and_moments_in_words() -> None:
    kinds = [kind_of(1, 1), kind_of(2, 3), kind_of(1, ALL), kind_of(ALL, ALL)]
    assert kinds == ["exclusive", "semaphore 2/3", "reader", "writer"]
    known = [f"app{SEPARATOR}a", f"app{SEPARATOR}b", f"web{SEPARATOR}a"]
    assert keys_of(f"app{SEPARATOR}", known) == known[:2]
    assert keys_of(f"app{SEPARATOR}a", []) == [known[0]]
    assert namespace_of(known[0]) == "app"
    assert moment_of(1_700_000_000_500_000) == 1_700_000_000.5


def test_what_is_shown_has_an_end() -> None:
    assert said("x" * 58) == repr("x" * 58)
    assert said("x" * 59) == "'" + "x" * 59 + "…"
    assert shown_text("x" * MAX_LABEL) == "x" * MAX_LABEL
    assert shown_text("x" * (MAX_LABEL + 1)) == "x" * (MAX_LABEL - 1) + "…"
    assert shown_text("a\tb") == "a\\tb"
    assert shown_text("x" * (MAX_LABEL - 2) + "\t") == "x" * (MAX_LABEL - 2) + "\\t"
    assert shown_text("x" * (MAX_LABEL - 1) + "\t") == "x" * (MAX_LABEL - 1) + "…"
