"""Programs as users run them, each in its own process, on every store."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.stores import PARTIAL_ROWS, ROWS, Row

Run: TypeAlias = Callable[..., str]
# A bucket is left out: its threads do not exist in a forked child, where it raises an error. DynamoDB is left out:
# botocore does not notice that its descriptors were closed.
EVERYWHERE = [
    row for row in [*ROWS, *PARTIAL_ROWS] if row.schemes and not row.twin and row.name not in ("s3", "dynamodb")
]


@pytest.fixture(params=[row for row in EVERYWHERE if row.reaches_processes], ids=lambda row: row.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place of each store that processes can share, or of the stores that a test names."""
    named = request.param
    row: Row = named if isinstance(named, Row) else next(each for each in EVERYWHERE if each.name == named)
    found = row.place(tmp_path).url
    assert found is not None
    return found


@pytest.fixture
def redis_url(tmp_path: Path) -> str:
    """An empty server of Valkey."""
    (row,) = [row for row in EVERYWHERE if row.name == "valkey"]
    return str(row.place(tmp_path).url)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program with arguments; returns its stdout without the last newline."""

    def run(program: str, *words: str, **environment: str) -> str:
        file = tmp_path / "program.py"
        file.write_text(program)
        command = [sys.executable, str(file), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=90, env={**os.environ, **environment}, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.removesuffix("\n")

    return run
