"""The plugin for pytest: fixtures with locks in memory, for tests of programs that lock.

It is loaded by every run of pytest where interlock is installed, so it imports nothing before a fixture is asked for.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from interlock.client._async.locks import AsyncLocks
    from interlock.client._sync.locks import Locks
    from interlock.testing.fakes import FakeLocks


def pytest_collection_finish() -> None:
    """Let freezegun, where tests have imported it, leave the clock of the locks alone."""
    freezegun: Any = sys.modules.get("freezegun")
    if freezegun is not None:
        freezegun.configure(extend_ignore_list=["interlock.runtime.clock"])


@pytest.fixture
def fake_locks() -> "Iterator[FakeLocks]":
    """A place for locks in memory, new for each test: its clock is set by hand, and faults can be ordered."""
    from interlock.testing.fakes import FakeLocks

    with FakeLocks() as fake:
        yield fake


@pytest.fixture
def locks(fake_locks: "FakeLocks") -> "Locks":
    """Locks for threads, in the memory of `fake_locks`."""
    return fake_locks.connect()


@pytest.fixture
def alocks(fake_locks: "FakeLocks") -> "AsyncLocks":
    """Locks for asyncio tasks, in the memory of `fake_locks`."""
    return fake_locks.aconnect()
