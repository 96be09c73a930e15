"""The fixture of the tests that run the command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    try:
        yield made
    finally:
        made.close()
