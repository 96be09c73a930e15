"""The pytest plugin: fixtures with locks in memory, for tests of programs that lock.

Every pytest run with interlock installed loads it, so it imports nothing before a fixture is used.
"""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from interlock.api._async.locks import AsyncLocks
    from interlock.api._sync.locks import Locks
    from interlock.testing.fakes import FakeLocks


RUN_RESULT_SECONDS = 366 * 86400.0  # seconds: longer than any test run; each run has its own folder


def pytest_collection_finish() -> None:
    """Exclude interlock's clock from freezegun, if the tests have imported that."""
    freezegun: Any = sys.modules.get("freezegun")
    if freezegun is not None:
        freezegun.configure(extend_ignore_list=["interlock.runtime.clock"])


@pytest.fixture
def fake_locks() -> "Iterator[FakeLocks]":
    """A store in memory, new for each test: the test moves its clock, and can order faults."""
    from interlock.testing.fakes import FakeLocks

    with FakeLocks() as fake:
        yield fake


@pytest.fixture(scope="session")
def once_per_run(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Callable[[str, Callable[[], Any]], Any]]":
    """`once_per_run(name, make)` calls `make` once in the whole test run, for all xdist workers.

    All callers get its result after a round trip through JSON; if it raises, the next caller calls it again.
    """
    import os

    from interlock import connect

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "interlock-once"
    with connect(folder.absolute()) as locks:
        yield lambda name, make: locks.once(name, keep=RUN_RESULT_SECONDS).run(make)


@pytest.fixture
def locks(fake_locks: "FakeLocks") -> "Locks":
    """Locks for threads, in the memory of `fake_locks`."""
    return fake_locks.connect()


@pytest.fixture
def alocks(fake_locks: "FakeLocks") -> "AsyncLocks":
    """Locks for asyncio tasks, in the memory of `fake_locks`."""
    return fake_locks.aconnect()
