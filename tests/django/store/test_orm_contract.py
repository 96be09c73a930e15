"""Every line of the contract, on the ORM store, on the database of INTERLOCK_TEST_DATABASE."""

import pytest

from interlock.django.store import OrmStore
from interlock.stores.driven import DrivenStore
from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import Place


@pytest.fixture
def place(databases: None) -> Place:
    """The table of claims, empty: `clean` sees to it."""
    return Place(open=lambda: DrivenStore(OrmStore("default")))
