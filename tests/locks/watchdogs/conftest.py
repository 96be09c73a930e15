"""What the watchdogs of both colours have: a store, a clock, and what was given back."""

from collections.abc import Iterator

import pytest

from interlock.locks.aio import watchdog as of_tasks
from interlock.locks.sync import watchdog as of_threads
from tests.support.spied_store import Clock
from tests.support.spied_watchdog import ALIVE, NOW, Queue


@pytest.fixture(autouse=True)
def alive() -> Iterator[None]:
    """Grants live as long as their test: a watchdog holds them weakly."""
    yield
    ALIVE.clear()


@pytest.fixture
def queue() -> Queue:
    """The store."""
    return Queue()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of both watchdogs."""
    clock = Clock(NOW)
    monkeypatch.setattr(of_threads, "time", clock)
    monkeypatch.setattr(of_tasks, "time", clock)
    return clock


@pytest.fixture
def given() -> list[str]:
    """What the watchdog gave back."""
    return []
