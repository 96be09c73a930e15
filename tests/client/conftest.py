"""Tests of the client itself run on memory://, since they do not depend on the store."""

import pytest

from interlock.testing.contract.fixtures import ann, bob, eve, kind, locks, world, world_of_tasks, world_of_threads
from tests.support.stores import ROWS, Row

__all__ = ["ann", "bob", "eve", "locks", "kind", "row", "world", "world_of_tasks", "world_of_threads"]


@pytest.fixture
def row() -> Row:
    """The row of memory://."""
    return ROWS[0]
