"""A contract test is selected by the name of its module: `pytest tests/contract -k exclusion`."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function):
        item.extra_keyword_matches.add(item.function.__module__.rpartition(".")[2])
