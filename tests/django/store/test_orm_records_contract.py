"""Every line of the contract, on the records of the ORM in the database of INTERLOCK_TEST_DATABASE."""

import pytest

from interlock.django.store import OrmStore
from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import StoreFixture

del test_a_release_wakes_one_not_all  # noqa: F821  # plain, not tuned: all waiters of its process look


@pytest.fixture
def place(databases: None) -> StoreFixture:
    """The table of records; `clean` empties it."""
    return StoreFixture(open=lambda: OrmStore("default"), open_for_tasks=lambda: OrmStore("default"))
