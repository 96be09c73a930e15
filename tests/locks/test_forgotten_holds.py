"""A re-entrant hold whose handles were forgotten while a renewal had it in its hand."""

import warnings
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import eventually


def test_it_is_given_back_with_a_warning() -> None:
    with interlock.connect("memory://") as locks:
        kept: list[Any] = [locks.rlock("shelf", ttl=0.3)]
        kept.append(kept[0].acquire())
        hold = kept[1]._grant

        def forget() -> None:
            kept.clear()
            eventually(lambda: not hold.held)

        with pytest.warns(ResourceWarning, match="'shelf' was never released"):
            forget()
        assert hold.lost is False
        assert locks.claims("shelf") == []


def test_where_warnings_are_errors_it_is_given_back_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with interlock.connect("memory://") as locks, warnings.catch_warnings():
        warnings.simplefilter("error")
        kept: list[Any] = [locks.rlock("shelf", ttl=0.3)]
        kept.append(kept[0].acquire())
        hold = kept[1]._grant
        kept.clear()
        eventually(lambda: not hold.held)
        assert hold.lost is False
    assert "'shelf' was never released" in caplog.text
