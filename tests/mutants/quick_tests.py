"""The quick tests, the lines that each executes, and the choice of tests for an error in a line."""

import ast
import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from coverage import CoverageData

from tests.mutants.pytest_run import run_pytest
from tools.unasync import HEADER, threads_of

SELECTION = (
    "-n 8 tests/core tests/client tests/contract tests/fakes tests/test_passwords.py "
    "tests/process/test_garbage_collection.py tests/process/test_exit.py tests/process/test_pickles.py -k"
)
ROWS = " and ".join(
    f"not {row}"
    for row in (
        "redis",
        "valkey",
        "postgresql",
        "mariadb",
        "mysql",
        "sqlite",
        "etcd",
        "s3",
        "bucket",
        "(threads and texts)",  # errors are made in what is written for tasks
        "(threads and records)",
    )
)
SLOW = 5.0  # seconds of a test; those that take longer are left out
QUICKEST = 0.1  # of the time is for the quickest tests, however many there are of a function
RECORDING = 1800.0  # seconds
FOR_TASKS, FOR_THREADS = "/_async/", "/_sync/"  # the folders of what is written, and of what is generated from it
SETTINGS = "[run]\nsource = src\n"

Place = tuple[str, int]


class Recording(NamedTuple):
    """A run of the quick tests in the tree without an error.

    Attributes:
        seconds: how long each test took that passed.
        tests: which tests executed a line.
    """

    seconds: dict[str, float]
    tests: dict[Place, set[str]]


def record(tree: Path, selection: Iterable[str] = (*SELECTION.split(), ROWS)) -> Recording:
    """Run the quick tests in a tree, and record the lines that each executes."""
    (tree / "mutants.coveragerc").write_text(SETTINGS)
    report = tree / "mutants.xml"
    words = ["--cov", "--cov-config=mutants.coveragerc", "--cov-context=test", "--cov-report="]
    ended = run_pytest(tree, [*words, f"--junitxml={report}", "--timeout=120", *selection], RECORDING)
    if not report.exists():
        raise RuntimeError(f"the quick tests can't be run:\n{ended.said[-2000:]}")
    seconds = dict(_passed(report))
    return Recording(seconds, _executed(tree, seconds))


def _passed(report: Path) -> Iterator[tuple[str, float]]:
    """Read the tests that passed, and the seconds that they took, from a report in JUnit's format."""
    for case in ElementTree.parse(report).iter("testcase"):
        if len(case) == 0 and float(case.attrib["time"]) < SLOW:
            file = case.attrib["classname"].replace(".", "/") + ".py"
            yield f"{file}::{case.attrib['name']}", float(case.attrib["time"])


def _executed(tree: Path, known: dict[str, float]) -> dict[Place, set[str]]:
    data = CoverageData(str(tree / ".coverage"))
    data.read()
    found: dict[Place, set[str]] = defaultdict(set)
    for path in data.measured_files():
        file = str(Path(path).relative_to(tree))
        for line, contexts in data.contexts_by_lineno(path).items():
            found[file, line].update(known.keys() & {context.rpartition("|")[0] for context in contexts})
    return found


def chosen(recording: Recording, tests: set[str], budget: float) -> list[str]:
    """Return tests to run: the quickest for a part of the time, then each function once, then each again.

    Args:
        recording: has the duration of each.
        tests: to choose from.
        budget: seconds that they may take together.
    """
    order = sorted(tests, key=lambda test: (recording.seconds[test], test))
    spent = list(accumulate(recording.seconds[test] for test in order))
    quickest = order[: bisect(spent, budget * QUICKEST)]
    functions: dict[str, list[str]] = defaultdict(list)
    for test in order[len(quickest) :]:
        functions[test.partition("[")[0]].append(test)
    kept = quickest
    budget -= sum(recording.seconds[test] for test in kept)
    for round in zip_longest(*functions.values()):
        for test in filter(None, round):
            budget -= recording.seconds[test]
            if budget < 0 and kept:
                return kept
            kept.append(test)
    return kept


def asked_about(recording: Recording, root: Path, place: Place) -> set[str]:
    """Return the tests that execute a line, in either colour; of one for an import only, those of what uses it."""
    file, line = place
    tests = _asked_about(recording, root, place)
    if FOR_TASKS in file:
        until = "".join((root / file).read_text().splitlines(keepends=True)[:line])
        twin = len((HEADER + threads_of(until)).splitlines())
        tests = tests | _asked_about(recording, root, (file.replace(FOR_TASKS, FOR_THREADS), twin))
    return tests


def _asked_about(recording: Recording, root: Path, place: Place) -> set[str]:
    file, line = place
    statement, is_in_function = _statement((root / file).read_text(), line)
    # What an import executes is judged by the tests of its users, not by those that happened to import the module.
    match statement:
        case None:
            return set()
        case ast.Assign() | ast.AnnAssign() | ast.ClassDef() if not is_in_function:
            return _union(recording, _uses(recording, root, _names(statement)))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            lines = range(statement.body[0].lineno, (statement.end_lineno or line) + 1)
            return _union(recording, ((file, each) for each in lines))
    return recording.tests.get(place) or recording.tests.get((file, statement.lineno), set())


def _statement(source: str, line: int) -> tuple[ast.stmt | None, bool]:
    """Return the innermost statement around a line (of a head, the definition), and whether it is in a function."""
    found: ast.stmt | None = None
    is_in_function = False
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(each.lineno for each in decorators)])
            if first <= line <= (node.end_lineno or first):
                is_in_function = is_in_function or isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
                found = node  # `walk` goes from the outside to the inside
    return found, is_in_function


def _names(statement: ast.Assign | ast.AnnAssign | ast.ClassDef) -> list[str]:
    if isinstance(statement, ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _uses(recording: Recording, root: Path, names: Iterable[str]) -> Iterator[Place]:
    """Find the lines, of all that the tests execute, that mention a name."""
    word = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    for file in {file for file, _ in recording.tests}:
        for number, text in enumerate((root / file).read_text().splitlines(), 1):
            if word.search(text):
                yield file, number


def _union(recording: Recording, places: Iterable[Place]) -> set[str]:
    return set().union(*(recording.tests.get(place, set()) for place in places))
