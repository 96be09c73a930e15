"""The stores that lack features of the contract; private servers, and other clients on them."""

from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from tests.support.databases import somebody_on, started, url_of
from tests.support.stores import PARTIAL_ROWS, Row


@pytest.fixture(params=PARTIAL_ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each store that lacks some kinds of locks."""
    found: Row = request.param
    return found


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
