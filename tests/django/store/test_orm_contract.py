"""Every line of the contract, on the locks of the database of INTERLOCK_TEST_DATABASE."""

import pytest

from interlock.django.databases import DatabaseStore
from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import Place


@pytest.fixture
def place(databases: None) -> Place:
    """The table of the locks, empty: `clean` sees to it."""
    return Place(open=lambda: DatabaseStore("default"), open_for_tasks=lambda: DatabaseStore("default"))
