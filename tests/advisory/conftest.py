"""A private PostgreSQL for advisory locks, and the part of the contract that applies to them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.testing.world import KINDS, Kind, Place
from tests.advisory.not_applicable import applies
from tests.servers import PostgresServer, need
from tests.support.stores import KINDS_OF_ADVISORY, PARTIAL_ROWS, Row

CONTRACT = Path(__file__).with_name("test_contract.py")  # others have one too


@pytest.fixture(params=PARTIAL_ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each store that has not every kind of lock."""
    found: Row = request.param
    return found


@pytest.fixture
def place(row: Row, tmp_path: Path) -> Place:
    """An empty place for locks."""
    return row.place(tmp_path)


@pytest.fixture(params=[kind for kind in KINDS if kind.name in KINDS_OF_ADVISORY], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of lock that they have."""
    found: Kind = request.param
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, not skip, what of the contract does not apply."""
    left = [
        item
        for item in items
        if item.path == CONTRACT and not applies(getattr(item, "originalname", item.name), item.name)
    ]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server for a test that changes or stops it."""
    need("postgres")
    with PostgresServer() as server:
        yield server
