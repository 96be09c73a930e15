"""The fixture for tests that run the command."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli_processes import CliRunner


@pytest.fixture
def run_cli(tmp_path: Path) -> Iterator[CliRunner]:
    with closing(CliRunner(tmp_path)) as made:
        yield made
