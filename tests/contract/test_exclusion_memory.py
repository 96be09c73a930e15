"""The contract tests of exclusion, in memory only: the quickest check of a change."""

from pathlib import Path

import pytest

from interlock.testing.contract import Place, ann, bob, eve, kind, locks, world, world_of_tasks, world_of_threads
from interlock.testing.contract.exclusion import *  # noqa: F403
from tests.support.stores import _memory

__all__ = ["ann", "bob", "eve", "kind", "locks", "place", "world", "world_of_tasks", "world_of_threads"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place in memory."""
    return _memory(tmp_path)
