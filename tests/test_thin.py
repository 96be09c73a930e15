"""What `--thin` leaves out: most combinations, of a test that runs in all of many."""

from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import EVERY, MANY, thinned

WHOLE: list[dict[str, object]] = [
    {"row": row, "colour": colour, "kind": kind}
    for row, colour, kind in product("abcdefgh", ("threads", "tasks"), range(EVERY))
]


def items(*combinations: dict[str, object], test: str = "test") -> list[Any]:
    """Return a test's items as pytest collects them."""
    return [
        SimpleNamespace(path=Path("tests"), originalname=test, callspec=SimpleNamespace(params=each))
        for each in combinations
    ]


def test_each_row_in_each_colour_meets_one_kind_and_each_kind_is_met() -> None:
    kept = [item.callspec.params for item in thinned(items(*WHOLE))]
    assert Counter((each["row"], each["colour"]) for each in kept) == dict.fromkeys(
        product("abcdefgh", ("threads", "tasks")), 1
    )
    assert {each["kind"] for each in kept} == set(range(EVERY))


def test_what_one_test_leaves_out_another_runs() -> None:
    tests = [item for number in range(60) for item in items(*WHOLE, test=f"test {number}")]
    met = [item.callspec.params for item in thinned(tests)]
    assert all(each in met for each in WHOLE)


def test_few_combinations_and_those_that_belong_together_are_all_kept() -> None:
    few = [{"row": row, "colour": colour} for row, colour in product(range(MANY // 2 - 1), ("threads", "tasks"))]
    assert len(thinned(items(*few))) == len(few)
    together: list[dict[str, object]] = [{"url": number, "message": str(number)} for number in range(2 * MANY)]
    assert len(thinned(items(*together))) == len(together)
