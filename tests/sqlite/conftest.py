"""Fixtures of the tests on SQLite: a place without locks, and processes that use it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.other_process import Remote
from tests.support.concurrent_callers import processes_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files lie."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture
def url(folder: Path) -> str:
    """The URL of a place without locks."""
    return f"sqlite:///{folder}/locks.db"


@pytest.fixture
def claims(url: str, folder: Path) -> Callable[[], str]:
    """Returns the file of this boot's claims, and makes it if it is missing."""

    def found() -> str:
        with interlock.connect(url) as locks:
            locks.claims("warm")
        (name,) = (each.name for each in folder.iterdir() if re.fullmatch(r"locks\.db-[0-9a-f]{12}", each.name))
        return str(folder / name)

    return found


@pytest.fixture
def locks(url: str) -> Iterator[Any]:
    """A connection for threads."""
    with interlock.connect(url) as locks:
        yield locks


@pytest.fixture
def remote(url: str) -> Iterator[Callable[[], Remote]]:
    """Starts processes that are connected to the place."""
    yield from processes_at(url)
