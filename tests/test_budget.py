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


def test_the_parts_of_the_package_are_all_of_it() -> None:
    within = [part for part in PARTS if part.suffix == ".py" and part.paths[:1] != ("src/interlock/",)]
    inside = [part for part in within if not part.paths or part.paths[0].startswith("src/")]
    (whole,) = [part for part in PARTS if part.paths == ("src/interlock/",)]
    assert (
        sum(budget.size(part).written for part in inside if part.name != "src/testing") == budget.size(whole).written
    )


def test_class_names_are_unique_except_public_ones() -> None:
    assert budget.same_names() == budget.SAME_NAMES, "name the class for what it is"


def test_foreign_private_names_are_exactly_those_listed() -> None:
    assert budget.foreign_names() == budget.FOREIGN, "use what is public; take out what is mended"


def test_no_more_annotations_may_be_anything() -> None:
    assert budget.per_thousand(budget.untyped) <= budget.ANY_LIMIT, "name the type, or a protocol"


SOURCE = '''"""A module."""

import os


class Thing:
    """A thing."""

    size = 1
    """How large."""

    def grow(self) -> None:
        """Grow."""
        self.size += 1; print(
            self.size,
        )
'''
