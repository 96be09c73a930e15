"""The steps of each SQL store against those of the memory store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.steps import play_many
from tests.support.stores import ROWS

SQL = [row for row in ROWS if row.name in ("postgresql", "mariadb", "sqlite")]


@pytest.fixture(params=SQL, ids=lambda row: row.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store for threads, in an empty place."""
    store = request.param.place(tmp_path).open()
    yield store
    store.close()


def test_each_step_does_what_the_memory_store_does(store: Any) -> None:
    play_many(store)
