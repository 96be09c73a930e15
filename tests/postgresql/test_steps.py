"""What steps of the functions in the database do beyond those of all SQL stores (tests/sql): fences, renewals."""

from collections.abc import Iterator
from typing import Any

import pytest

from interlock.client.connect import open_store
from interlock.runtime.sync import run
from tests.servers import PostgresServer
from tests.support.steps import claim_of


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    """A store for threads."""
    store = open_store(url)
    yield store
    store.close()


def test_a_fence_is_higher_than_all_before_though_the_clock_goes_back(store: Any, url: str, ask: Any) -> None:
    """As after a restored dump of another server, or a clock that was set back by an hour."""
    table = url.rpartition("=")[2]
    first = run(store.enter(claim_of("a", (1, 1), "n"), None, True, False)).fence
    run(store.leave(claim_of("a", (1, 1), "n")))
    ask(f"UPDATE {table} SET top = top + 3600000000")
    fences = []
    for id in ("b", "c", "d"):
        fences.append(run(store.enter(claim_of(id, (1, 1), "n"), None, True, False)).fence)
        run(store.leave(claim_of(id, (1, 1), "n")))
    assert fences == [first + 3600000001, first + 3600000002, first + 3600000003]


def test_a_renewal_holds_up_nobody_and_is_held_up_by_nobody(store: Any, url: str, server: PostgresServer) -> None:
    """One claim is locked by a step that does not end; the others are renewed."""
    import psycopg

    table = url.rpartition("=")[2]
    claims = [claim_of(id, (1, 1), id) for id in ("a", "b", "c")]
    for claim in claims:
        assert run(store.enter(claim, None, True, False)).state == "using"
    with psycopg.connect(server.url) as other:
        other.execute(f"SELECT 1 FROM {table} WHERE id = 'b' FOR UPDATE")
        first, second, third = run(store.renew([*claims]))
        assert (first, third) == (True, True)
        assert isinstance(second, Exception)
    assert run(store.renew([*claims, claim_of("gone", (1, 1), "x")])) == [True, True, True, False]
