"""What `--thin` leaves out: most combinations, of a test that runs in all of many."""

from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import BY_THREADS, EVERY, MANY, in_one_colour, thinned

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


class Played:
    """A test of the contract as pytest collects it."""

    def __init__(self, test: str, *words: str, file: str = "test_contract.py") -> None:
        self.path = Path("tests") / file
        self.originalname = test
        self.callspec = SimpleNamespace(id="-".join(words), params={})


def test_a_store_whose_tasks_ask_in_threads_meets_a_test_in_one_colour_and_others_in_both() -> None:
    stores = ("memory", "valkey", "sqlite", "mariadb")
    met = [
        [item.callspec.id.split("-") for item in in_one_colour(played)]
        for test in range(20)
        for played in [[Played(f"test {test}", colour, store) for store in stores for colour in ("threads", "tasks")]]
    ]
    for words in met:
        assert Counter(store for _, store in words) == {"memory": 2, "valkey": 2, "sqlite": 1, "mariadb": 1}
        assert {colour for colour, store in words if store in BY_THREADS} == {"threads", "tasks"}
    assert len({str(words) for words in met}) == 2


def test_what_runs_in_one_colour_only_is_kept_and_djangos_store_is_one_of_them() -> None:
    alone = [Played("test", "tasks", "sqlite", kind) for kind in ("reader", "writer")]
    assert in_one_colour(alone) == alone
    orm = [Played("test", colour, file="test_orm_contract.py") for colour in ("threads", "tasks")]
    assert len(in_one_colour(orm)) == 1
