"""The tool of `./dev mutants tool` on a small project of its own."""

from pathlib import Path

import pytest

from tests.mutants.pytest_run import ROOT
from tests.mutants.quick_tests import asked_about, chosen, record
from tests.mutants.tool_mutations import Mutation, mutated, mutations_of
from tests.mutants.tool_run import ask, interval, judged, sample, unsound

CODE = """\
LIMIT = 3


def too_many(number: int | None) -> bool:
    if number is None:
        return False
    return number > LIMIT


def never_asked(number):
    return number + 1
"""

TESTS = """\
from toy import too_many


def test_many_are_too_many():
    assert too_many(5)


def test_few_are_not():
    assert not too_many(2)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A module, and tests that leave its boundary and its None alone."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/toy.py").write_text(CODE)
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/test_toy.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_an_error_that_breaks_something_is_noticed_and_one_that_nothing_asks_for_survives(project: Path) -> None:
    recording = record(project, ["checks"])
    wanted = {
        "ReplaceComparisonOperator_Gt_NotEq": True,
        "ReplaceComparisonOperator_Gt_GtE": False,
        "ReplaceBinaryOperator_Add_Sub": False,
    }
    errors = [each for each in mutations_of(project, "src/toy.py") if each.operator in wanted]
    found = list(judged([project], recording, [(each, str(mutated(CODE, each))) for each in errors]))
    assert {each.mutation.operator: each.killed for each in found} == wanted
    assert [each.by for each in found if each.killed] == ["checks/test_toy.py::test_few_are_not"]
    assert (project / "src/toy.py").read_text() == CODE
    assert ask(project, list(recording.seconds), 1).status == 0
    assert unsound(project, found) == set()
    # What only an import executes is judged by the tests of what uses it.
    everything = set(recording.seconds)
    assert asked_about(recording, project, ("src/toy.py", 1)) == everything
    assert asked_about(recording, project, ("src/toy.py", 4)) == everything
    assert asked_about(recording, project, ("src/toy.py", 11)) == set()
    assert set(chosen(recording, everything, 3.0)) == everything


def test_the_same_seed_draws_the_same_errors_and_another_one_others() -> None:
    first, possible = sample(ROOT, ["core/queue.py"], 1, 5)
    assert sample(ROOT, ["core/queue.py"], 1, 5) == (first, possible)
    assert sample(ROOT, ["core/queue.py"], 2, 5)[0] != first


def test_types_and_what_is_written_into_the_log_are_no_errors(project: Path) -> None:
    (project / "src/toy.py").write_text(
        "X: int | None = 1\n__slots__ = 1 + 2\n\ndef f(a: int | str = 2):\n    log.warn(1 + 1)\n"
    )
    assert {(each.line, each.operator) for each in mutations_of(project, "src/toy.py")} == {
        (1, "NumberReplacer"),
        (4, "NumberReplacer"),
    }


def test_that_a_constant_is_equal_to_itself_is_no_error(project: Path) -> None:
    (project / "src/toy.py").write_text("def f(a, b):\n    return a is Verdict.GONE or a is b\n")
    equals = [each for each in mutations_of(project, "src/toy.py") if each.operator.endswith("_Is_Eq")]
    assert [mutated("def f(a, b):\n    return a is Verdict.GONE or a is b\n", each) for each in equals] == [
        "def f(a, b):\n    return a is Verdict.GONE or a == b\n"
    ]


def test_what_an_operator_makes_that_is_no_python_is_no_error() -> None:
    star = Mutation("toy.py", 1, "ReplaceBinaryOperator_Mul_Add", 0)
    assert mutated("def f(*, a): return a\n", star) is None
    assert mutated("x = 2 * 2\n", star) == "x = 2 + 2\n"


def test_the_interval_of_a_rate() -> None:
    low, high = interval(180, 200)
    assert (round(low, 3), round(high, 3)) == (0.851, 0.934)
