"""Grants of both colours, or of one, by a clock that stands."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from interlock.locks import grants as of_both
from interlock.locks.aio import grants as of_tasks
from interlock.locks.sync import grants as of_threads
from interlock.locks.unreleased import kept
from tests.support.spied_grants import NOW, Colour


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A clock that stands at 100."""
    clock = SimpleNamespace(now=NOW)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(of_threads, "monotonic", clock.monotonic)
    monkeypatch.setattr(of_tasks, "time", clock)
    monkeypatch.setattr(of_both, "time", clock)
    yield clock
    kept.clear()


@pytest.fixture(params=["threads", "tasks"])
def colour(request: pytest.FixtureRequest, clock: SimpleNamespace) -> Colour:
    """Both colours."""
    return Colour(request.param == "tasks", clock)


@pytest.fixture
def threads(clock: SimpleNamespace) -> Colour:
    """Grants of threads."""
    return Colour(False, clock)


@pytest.fixture
def tasks(clock: SimpleNamespace) -> Colour:
    """Grants of tasks."""
    return Colour(True, clock)
