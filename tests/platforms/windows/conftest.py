"""Options and fixtures of the tests that Windows' Python runs.

A test that takes long has the marker `long`.  Without `--whole` those are left out, and so is most of the contract.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest

from interlock.testing.other_process import Remote
from tests.platforms.windows.places import STORES, emptied, store_name

if sys.platform == "win32" and os.environ.get("INTERLOCK_TEST_LOOP") == "selector":
    asyncio.set_event_loop_policy(asyncio.WindowsSelectorEventLoopPolicy())

ONE_OF = 24
"""On each store, one of 24 of the contract's tests on exclusive locks runs; each store has another choice."""

ALWAYS = ("release_wakes", "excludes", "fence_is_greater", "reply_was_lost", "raises_on_leaving")
"""Words in the names of tests of the contract that run on each store."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for all tests."""
    parser.addoption("--whole", action="store_true", help="run all of the contract, and what is marked as long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long."""
    if config.getoption("whole"):
        return
    kept = [item for item in items if _is_kept(item)]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def _is_kept(item: pytest.Item) -> bool:
    if item.get_closest_marker("long") is not None:
        return False
    if item.path.name != "test_contract.py":
        return True
    words = item.callspec.id.split("-") if hasattr(item, "callspec") else []
    kinds = {"re-entrant", "reader", "writer", "semaphore", "semaphore, all permits"}
    if kinds & set(words):
        return False
    return any(word in item.name for word in ALWAYS) or crc32(item.name.encode()) % ONE_OF == 0


@pytest.fixture(params=[each for each in STORES if each != "memory"], ids=store_name)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that several processes can open; its lines are empty."""
    return emptied(request.param, tmp_path)


@pytest.fixture
def remote(shared: str) -> Iterator[Callable[[], Remote]]:
    """Start a process that has connected to the store as `locks`; all are killed after the test."""
    started: list[Remote] = []

    def start() -> Remote:
        started.append(Remote(shared))
        return started[-1]

    yield start
    for each in started:
        each.close()
