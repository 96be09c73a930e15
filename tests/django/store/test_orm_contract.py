"""Every line of the contract, on the locks of the database of INTERLOCK_TEST_DATABASE."""

import pytest
from django.db import connection

from interlock.django.databases import DatabaseStore
from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import StoreFixture


@pytest.fixture
def place(databases: None) -> StoreFixture:
    """The table of the locks; `clean` empties it."""
    beside = connection.vendor == "sqlite"  # in files, whose locks end with their process
    return StoreFixture(
        open=lambda: DatabaseStore("default"), open_for_tasks=lambda: DatabaseStore("default"), frees_at_death=beside
    )
