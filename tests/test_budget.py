"""The project stays within its budget; the table is in tests/support/budget.py, and a limit there is one line."""

import ast
from pathlib import Path

import pytest

from tests.support import budget
from tests.support.budget import MODULES, PARTS, Part

HOW = "see `python -m tests.support.budget`; a limit is lowered, not raised"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_no_part_is_larger_than_its_limit(part: Part) -> None:
    assert budget.size(part).written <= part.limit, HOW


def test_there_are_no_more_modules_than_the_limit() -> None:
    assert len(budget.written()) <= MODULES.limit, HOW


def test_the_parts_of_the_package_are_all_of_it() -> None:
    within = [part for part in PARTS if part.suffix == ".py" and part.paths[:1] != ("src/interlock/",)]
    inside = [part for part in within if not part.paths or part.paths[0].startswith("src/")]
    (whole,) = [part for part in PARTS if part.paths == ("src/interlock/",)]
    assert (
        sum(budget.size(part).written for part in inside if part.name != "src/testing") == budget.size(whole).written
    )


def test_no_more_classes_share_a_name_than_are_listed_and_those_listed_still_do() -> None:
    assert budget.same_names() == budget.SAME_NAMES, "name the class for what it is; take out what is mended"


def test_no_more_private_names_of_others_are_used_than_are_listed_and_those_listed_still_are() -> None:
    assert budget.foreign_names() == budget.FOREIGN, "use what is public; take out what is mended"


def test_no_more_parameters_may_be_anything() -> None:
    assert budget.any_percent() <= budget.ANY_LIMIT, HOW


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


def test_imports_and_docstrings_are_no_statements_and_lines_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "thing.py"
    file.write_text(SOURCE)
    assert budget.statements(file) == 5  # the class, its attribute, its method, and two in there


def test_what_is_generated_is_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "written.py").write_text("a = 1\nb = 2\n")
    (tmp_path / "made.py").write_text("# Generated from written.py\na = 1\n")
    assert budget.size(Part("both", None, 0, (str(tmp_path),))) == (2, 1)


def test_the_lines_of_other_languages_count(tmp_path: Path) -> None:
    (tmp_path / "quick.c").write_text("int a;\n\nint b;\n")
    assert budget.size(Part("C", None, 0, (str(tmp_path),), ".c")) == (3, 0)


def test_private_names_are_found_as_attributes_as_strings_and_in_imports() -> None:
    source = "from theirs._inside import _thing\nraw._sock.close()\ngetattr(raw, '_buffer', b'')\nraw.__init__()\n"
    assert sorted(budget.private_names(ast.parse(source))) == ["_buffer", "_inside", "_sock", "_thing"]


def test_what_a_module_defines_is_its_own() -> None:
    source = "class _A:\n    __slots__ = ('_b', '_c')\n    def _d(self):\n        self._e = theirs._f\n_g = 1\n"
    assert set(budget.defined(ast.parse(source))) == {"_A", "__slots__", "_b", "_c", "_d", "_e", "_g"}
