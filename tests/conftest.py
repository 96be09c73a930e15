"""Fixtures that several folders of tests share."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.runtime import log
from interlock.testing.world import Place
from tests.support.starter import take_signals_as_at_a_terminal
from tests.support.stores import ROWS, Row

take_signals_as_at_a_terminal()  # before anything starts a thread or a process

SAME_LINES = {"redis", "writer", "semaphore", "semaphore, all permits"}
"""Stores and kinds in the names of tests that execute the lines which others have executed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Coverage doubles the time of a test: `./dev test` runs apart what shows no more of it."""
    parser.addoption("--part", choices=("covered", "plain"), help="run only what coverage needs, or only the rest")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests, if one is asked for."""
    part = config.getoption("part")
    if part is not None:
        apart = [item for item in items if _repeats(item) != (part == "plain")]
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if _repeats(item) == (part == "plain")]


def _repeats(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    return not SAME_LINES.isdisjoint(item.callspec.id.split("-"))


def pytest_configure() -> None:
    """Look for no garbage while pytest collects the tests: there is none, and it takes a third of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Hide what pytest has made from the garbage collector: `gc.collect()` in a test looked at all of it, 0.2 s."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Hypothesis, which may be imported only now, asks the garbage collector who refers to its objects."""
    gc.unfreeze()


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each row of the one table of stores."""
    found: Row = request.param
    return found


@pytest.fixture
def place(row: Row, tmp_path: Path) -> Place:
    """An empty place for locks, on each store of the table."""
    return row.place(tmp_path)


@pytest.fixture(autouse=True)
def _undiverted() -> Iterator[None]:
    """Give the log back: `interlock run` takes the one of its process, which is that of the tests here."""
    yield
    log.divert(None)
