"""Fixtures of the tests on a shared folder: an empty folder on a local disk, and its URL."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, for one group."""
    made = tmp_path / "locks"
    made.mkdir()
    made.chmod(0o2770)
    return made


@pytest.fixture
def url(folder: Path) -> str:
    """Its URL."""
    return f"share://{folder}"
