"""Sessions of both colours, or of one."""

from collections.abc import Iterator

import pytest

from tests.support.spied_session import Colour


@pytest.fixture(params=["threads", "tasks"])
def colour(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Colour]:
    """Both colours."""
    colour = Colour(request.param == "tasks", monkeypatch)
    yield colour
    colour.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Colour]:
    """A connection of threads."""
    colour = Colour(False, monkeypatch)
    yield colour
    colour.close()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Colour]:
    """A connection of tasks."""
    colour = Colour(True, monkeypatch)
    yield colour
    colour.close()
