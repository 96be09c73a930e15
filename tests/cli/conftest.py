"""The fixture for tests that run the command."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli_processes import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with closing(House(tmp_path)) as made:
        yield made
