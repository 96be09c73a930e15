"""How often to try, and how long to pause: without a clock or a store."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.core.errors import StoreError
from interlock.optimistic import Conflict, TryAgain
from interlock.optimistic.tries import LONGEST_PAUSE, SHORTEST_IO_TIMEOUT, Limits, Tries


def longest(low: float, high: float) -> float:
    """The upper end."""
    assert low == 0
    return high


def tries(**limits: Any) -> Tries:
    """Tries that begin at 100 s, and always take the longest pause."""
    return Tries(Limits(**{"retries": None, "timeout": None, "backoff": 0.01, **limits}), 100.0, longest)


def test_the_bound_of_the_pause_doubles_up_to_a_limit() -> None:
    one = tries()
    pauses = [one.pause_before_next([], None, 100.0) for _ in range(2000)]
    assert pauses[:5] == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16])
    assert set(pauses[5:]) == {LONGEST_PAUSE}
    assert one.number == 2001


def test_the_pause_is_random_from_nothing_to_the_bound() -> None:
    pauses = [Tries(Limits(None, None, 0.01), 0.0).pause_before_next([], None, 0.0) for _ in range(200)]
    assert all(0 <= pause <= 0.01 for pause in pauses)
    assert len(set(pauses)) > 100
    assert min(pauses) < 0.003 < 0.007 < max(pauses)


@given(
    timeout=st.floats(0.001, 100),
    backoff=st.floats(0, 1000),
    steps=st.lists(st.floats(0, 10), max_size=50),
)
def test_no_pause_goes_beyond_the_time_out(timeout: float, backoff: float, steps: list[float]) -> None:
    one = tries(timeout=timeout, backoff=backoff)
    now = 100.0
    deadline = now + timeout
    for step in steps:
        now += step
        try:
            pause = one.pause_before_next(["a"], None, now)
        except Conflict:
            assert now >= deadline
            return
        assert now < deadline
        assert 0 <= pause <= min(LONGEST_PAUSE, deadline - now)
        now += pause


@given(retries=st.integers(0, 30))
def test_as_many_tries_as_allowed_and_one(retries: int) -> None:
    one = tries(retries=retries)
    for _ in range(retries):
        one.pause_before_next([], None, 100.0)
    with pytest.raises(Conflict) as caught:
        one.pause_before_next(["a", 7], None, 101.5)
    assert (caught.value.tries, caught.value.seconds, caught.value.keys) == (retries + 1, 1.5, ("a", 7))
    assert "'a', 7" in str(caught.value)
    assert "retries=, timeout=" in str(caught.value)


def test_trouble_at_the_end_is_told_instead_of_a_conflict() -> None:
    one = tries(retries=1)
    failure = TryAgain("the slot is moving")
    one.pause_before_next([], failure, 100.0)
    with pytest.raises(StoreError, match=r"the slot is moving \(in each of 2 tries\)") as caught:
        one.pause_before_next([], failure, 100.0)
    assert not isinstance(caught.value, TryAgain)  # else a transaction around this one would take it for its own


@pytest.mark.parametrize(
    ("timeout", "now", "io_timeout"),
    [(None, 100, None), (5, 100, 5), (5, 102, 3), (5, 104.9, SHORTEST_IO_TIMEOUT), (5, 200, SHORTEST_IO_TIMEOUT)],
)
def test_the_store_may_take_what_is_left_and_always_a_moment(
    timeout: float | None, now: float, io_timeout: float | None
) -> None:
    assert tries(timeout=timeout).io_timeout(now) == io_timeout


def test_no_overflow_after_very_many_tries() -> None:
    one = tries(backoff=1e300)
    assert all(math.isfinite(one.pause_before_next([], None, 100.0)) for _ in range(3000))
