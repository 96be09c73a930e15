"""A choice of the contract, on a store whose clients take turns on two mounts; only `./dev test all` runs it."""

from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

import pytest

from interlock.testing.contract import *  # noqa: F403
from interlock.testing.contract import StoreFixture
from interlock.testing.waiting import eventually
from tests.servers import Mounts, need
from tests.share.test_mounts import KINDS
from tests.support.brief_share import BriefShareStore

CHAPTERS = {"exclusion", "fences", "order", "once", "lost_replies"}
for _name, _test in list(globals().items()):
    if _name.startswith("test_") and _test.__module__.rpartition(".")[2] not in CHAPTERS:
        del globals()[_name]
pytestmark = pytest.mark.rare
_numbers = count()


@pytest.fixture(scope="module", params=KINDS)
def mounts(request: pytest.FixtureRequest) -> Iterator[Mounts]:
    """Two mounts of one folder."""
    need(request.param)
    with KINDS[request.param]() as mounted:
        yield mounted


@pytest.fixture
def place(mounts: Mounts) -> StoreFixture:
    """An empty folder on both mounts."""
    name = f"contract-{next(_numbers)}"
    folders = [path / name for path in mounts.paths]
    folders[0].mkdir()
    eventually(folders[1].is_dir)
    turns: Iterator[Path] = cycle(folders)
    return StoreFixture(open=lambda: BriefShareStore(str(next(turns))))
