"""The stores that lack features of the contract; private servers, and other clients on them."""

from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock.core.errors import Unsupported
from interlock.core.queue import ALL
from interlock.testing.store_fixture import Place
from tests.support.databases import somebody_on, started, url_of
from tests.support.stores import PARTIAL_ROWS, Row


@pytest.fixture(params=PARTIAL_ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each store that lacks some kinds of locks."""
    found: Row = request.param
    return found


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Skip a contract test that needs a feature which the store does not have."""
    try:
        return (yield)
    except Unsupported as error:
        place = pyfuncitem.funcargs.get("place")
        if isinstance(place, Place) and any(f"has no {each}" in str(error) for each in ALL - place.open().features):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of each kind, for all tests of a module that do not change it."""
    yield from started(request.param)


@pytest.fixture(params=["postgresql", "mariadb"])
def own_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of each kind, for a test that stops it."""
    yield from started(request.param)


@pytest.fixture
def other(server: Any) -> Iterator[Any]:
    """Another client, with plain SQL."""
    found = somebody_on(server)
    yield found
    found.close()


@pytest.fixture
def locks(server: Any) -> Iterator[Any]:
    """Locks of threads."""
    with interlock.connect(url_of(server)) as locks:
        yield locks
