"""What all tests on SQLite share: a place without locks, and processes that use it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.stores.sqlite.options import Options, options_of
from interlock.testing.remote import Remote


@pytest.fixture
def options(url: str) -> Options:
    """What the URL says."""
    from urllib.parse import urlsplit

    return options_of(urlsplit(url))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """How to connect to a place without locks."""
    (tmp_path / "place").mkdir()
    return f"sqlite:///{tmp_path}/place/locks.db"


@pytest.fixture
def locks(url: str) -> Iterator[Any]:
    """A connection for threads."""
    with interlock.connect(url) as locks:
        yield locks


@pytest.fixture
def remote(url: str) -> Iterator[Callable[[], Remote]]:
    """Makes processes that are connected to the place."""
    made: list[Remote] = []

    def make() -> Remote:
        made.append(Remote(url))
        return made[-1]

    yield make
    for each in made:
        each.close()
