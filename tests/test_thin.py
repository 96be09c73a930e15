"""What `--thin` leaves out: every second combination, of a test that runs in all of many."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import MANY, thinned


def items(*combinations: dict[str, object]) -> list[Any]:
    """Return a test's items as pytest collects them."""
    return [
        SimpleNamespace(path=Path("tests"), originalname="test", callspec=SimpleNamespace(params=each))
        for each in combinations
    ]


def test_each_two_of_three_parameters_meet() -> None:
    whole = [
        {"row": row, "colour": colour, "kind": kind}
        for row, colour, kind in product("abcdef", ("threads", "tasks"), range(6))
    ]
    kept = [item.callspec.params for item in thinned(items(*whole))]
    assert len(kept) == len(whole) / 2
    for one, other in (("row", "colour"), ("row", "kind"), ("colour", "kind")):
        pairs = {(each[one], each[other]) for each in whole}
        assert {(each[one], each[other]) for each in kept} == pairs


def test_few_combinations_and_those_that_belong_together_are_all_kept() -> None:
    few = [{"row": row, "colour": colour} for row, colour in product(range(MANY // 2 - 1), ("threads", "tasks"))]
    assert len(thinned(items(*few))) == len(few)
    together: list[dict[str, object]] = [{"url": number, "message": str(number)} for number in range(2 * MANY)]
    assert len(thinned(items(*together))) == len(together)
