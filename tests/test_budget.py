"""The package grows by at most 5 % over the table in tests/support/budget.py; all other sizes are only reported."""

import math

import pytest

from tests.support import budget
from tests.support.budget import MODULES, PARTS, WHOLE, Part

HOW = "see `python -m tests.support.budget`; if the growth is intended, write the new sizes into its table"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_package_grows_by_at_most_five_percent(part: Part) -> None:
    assert budget.size(part).written <= part.limit, HOW


def test_a_new_module_is_accepted() -> None:
    whole = [part for part in (*PARTS, MODULES) if not math.isinf(part.limit)]
    assert [part.name for part in whole] == [WHOLE]
    assert whole[0].limit - whole[0].last > 500


def test_no_more_annotations_may_be_anything() -> None:
    assert budget.per_thousand(budget.untyped) <= budget.ANY_LIMIT, "name the type, or a protocol"
