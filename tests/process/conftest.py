"""Other processes, for tests on the stores that several processes can share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock.testing.other_process import Remote
from interlock.testing.store_fixture import THREADS, ContractWorld, StoreFixture
from tests.support.concurrent_callers import processes_at
from tests.support.files_folder import connect
from tests.support.stores import ROWS, Row

Start = Callable[[], Remote]
FREES_AT_DEATH = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.frees_at_death], indirect=True, ids=lambda row: row.name
)
"""Stores where the lock of a killed process is free at once; on the others its lease ends."""


@pytest.fixture(params=[row for row in ROWS if row.reaches_processes and not row.twin], ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each store that several processes can share; its server does not see how a process ends."""
    found: Row = request.param
    return found


@pytest.fixture
def url(place: StoreFixture) -> str:
    """The URL of an empty place."""
    assert place.url is not None
    return place.url


@pytest.fixture
def world(place: StoreFixture) -> Iterator[ContractWorld]:
    """A world of threads, in this process; its lock is "book"."""
    world = ContractWorld(place, THREADS)
    world.name = "book"
    yield world
    world.close()


@pytest.fixture
def locks(url: str) -> Iterator[interlock.Locks]:
    """A connection of this process."""
    with interlock.connect(url) as locks:
        yield locks


@pytest.fixture
def remote(url: str) -> Iterator[Callable[[], Remote]]:
    """Starts other processes, and ends them with the test."""
    yield from processes_at(url)


@pytest.fixture
def neighbour(folder: Path) -> Iterator[Remote]:
    """Another process on the folder of a file store."""
    other = Remote(f"file://{folder}")
    yield other
    other.close()


@pytest.fixture
def line(folder: Path) -> Iterator[interlock.Locks]:
    """A connection to the folder that has used the line of "book", and keeps it open."""
    with connect(folder) as locks:
        with locks.lock("book"):
            pass
        yield locks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a file store; not made yet."""
    return tmp_path / "locks"


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The path of a log that several processes share."""
    return str(tmp_path / "log")
