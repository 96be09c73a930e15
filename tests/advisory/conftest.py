"""The stores that lack features of the contract, and private servers for what is done to a server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.core.errors import Unsupported
from interlock.testing.world import Place
from tests.servers import MariaServer, PostgresServer, need
from tests.support.stores import PARTIAL_ROWS, Row


@pytest.fixture(params=PARTIAL_ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each store that has not every kind of lock."""
    found: Row = request.param
    return found


@pytest.fixture
def place(row: Row, tmp_path: Path) -> Place:
    """An empty place for locks."""
    return row.place(tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Skip what asks for a feature that is not in the store's own table, and nothing else."""
    try:
        return (yield)
    except Unsupported as error:
        place = pyfuncitem.funcargs.get("place")
        if isinstance(place, Place) and any(f"has no {each}" in str(error) for each in lacking(place)):
            pytest.skip(str(error))
        raise


def lacking(place: Place) -> set[str]:
    """Return what of the contract a store does not say that it can."""
    return {"readers", "semaphores", "slot", "once", "detach", "wanted"} - place.open().features


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server for a test that changes or stops it."""
    need("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=[PostgresServer, MariaServer], ids=["postgresql", "mariadb"])
def either(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of each kind, for a test that changes or stops it."""
    need("postgres" if request.param is PostgresServer else "mariadb")
    with request.param() as server:
        yield server
