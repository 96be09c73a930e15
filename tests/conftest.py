"""Fixtures that several folders of tests share."""

from pathlib import Path

import pytest

from interlock.testing.world import Place
from tests.support.starter import take_signals_as_at_a_terminal
from tests.support.stores import ROWS, Row

take_signals_as_at_a_terminal()  # before anything starts a thread or a process


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each row of the one table of stores."""
    found: Row = request.param
    return found


@pytest.fixture
def place(row: Row, tmp_path: Path) -> Place:
    """An empty place for locks, on each store of the table."""
    return row.place(tmp_path)
