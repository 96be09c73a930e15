"""Fixtures with locks in memory, for tests of programs that lock.

A program asks for them in its `conftest.py`: `pytest_plugins = ["interlock.testing.fixtures"]`.
"""

from collections.abc import Iterator

import pytest

from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
from interlock.testing.fakes import FakeLocks


@pytest.fixture
def fake_locks() -> Iterator[FakeLocks]:
    """A store in memory, new for each test: the test moves its clock, and can order faults."""
    with FakeLocks() as fake:
        yield fake


@pytest.fixture
def locks(fake_locks: FakeLocks) -> Locks:
    """Locks for threads, in the memory of `fake_locks`."""
    return fake_locks.connect()


@pytest.fixture
def alocks(fake_locks: FakeLocks) -> AsyncLocks:
    """Locks for asyncio tasks, in the memory of `fake_locks`."""
    return fake_locks.aconnect()
