"""Every line of the contract, on the records of the ORM in the database of INTERLOCK_TEST_DATABASE."""

import pytest

from interlock.django.store import OrmStore
from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import Place


@pytest.fixture
def place(databases: None) -> Place:
    """The table of records; `clean` empties it."""
    return Place(open=lambda: OrmStore("default"), open_for_tasks=lambda: OrmStore("default"))
