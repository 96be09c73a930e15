"""The table that says which test holds which line of the contract: all its tests exist, and none is forgotten."""

import ast
from pathlib import Path

from interlock.testing import contract
from tests.contract.coverage_table import CONTRACT, NOT_YET, PITFALLS

TESTS = Path(__file__).parents[1]
PITFALLS_IN_ALL = 54


def names_of_tests_in(*folders: Path) -> set[str]:
    """Return the names of all test functions in these folders."""
    found: set[str] = set()
    for folder in folders:
        for path in folder.glob("*.py"):
            tree = ast.parse(path.read_text())
            found |= {
                node.name
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            }
    return found


def named() -> set[str]:
    """Return the names of the tests in the table."""
    return {name for lines in (CONTRACT, PITFALLS) for names in lines.values() for name in names}


def test_every_test_in_the_table_exists() -> None:
    package = Path(contract.__file__).parent
    folders = [each for each in TESTS.rglob("*") if each.is_dir()]
    assert named() - names_of_tests_in(package, TESTS, *folders) == set()


def test_every_test_of_the_contract_is_in_the_table() -> None:
    assert {name for name in contract.__all__ if name.startswith("test_")} - named() == set()


def test_every_line_has_a_test() -> None:
    assert all(CONTRACT.values())
    assert all(PITFALLS.values())
    assert sorted([*PITFALLS, *NOT_YET]) == list(range(1, PITFALLS_IN_ALL + 1))
