"""The contract, on the stores of INTERLOCK_TEST_STORES."""

from pathlib import Path

import pytest

from interlock.api.connect import open_store
from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import StoreFixture
from tests.platforms.windows.places import STORES, emptied, store_name


@pytest.fixture(params=STORES, ids=store_name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFixture:
    url = emptied(request.param, tmp_path)
    return StoreFixture(
        open=lambda: open_store(url),
        open_for_tasks=lambda: open_store(url, tasks=True),
        url=None if url.startswith("memory:") else url,
        frees_at_death=request.param == "file",
    )
