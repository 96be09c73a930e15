"""Fixtures of the examples' tests."""

from pathlib import Path

import pytest

from tests.support.library_site import Example


@pytest.fixture
def example(tmp_path: Path) -> Example:
    """examples/library, with its files in a temporary folder."""
    return Example(tmp_path / "data")
