"""The scripts do what the reference does: the same steps on both leave the same line, and promote the same claims."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from interlock.claims import SEPARATOR, WRITER_UNITS, Claim, Terms
from interlock.engine import fresh_id, run
from interlock.stores.base import Store
from interlock.stores.memory import MemoryStore, Space
from interlock.testing.servers import RedisServer, need
from interlock.urls import open_store

DEMANDS = [(1, 1), (1, 3), (2, 3), (3, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS), (1, 2)]
STEP = some.tuples(some.sampled_from(["enter", "enter", "enter", "try", "leave", "leave", "again", "renew", "evict"]),
                   some.integers(0, 30), some.sampled_from(DEMANDS))  # fmt: skip
LONG = 600.0


class Deaf:
    """A wake-up that nobody listens to."""

    def tell(self, message: object = None) -> None:
        """Do nothing."""


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A private server for these tests."""
    need(request.param)
    with RedisServer(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def store(server: RedisServer) -> Iterator[Store]:
    """A store on it."""
    store = open_store(server.url)
    yield store
    store.close()


def line(store: Store, key: str) -> list[tuple[str, str]]:
    """Return who stands in line, and how; holders in any order, waiters in theirs."""
    views = run(store.look(key))
    holders = sorted(view.id for view in views if view.state == "using")
    return [(id, "using") for id in holders] + [(view.id, "pending") for view in views if view.state == "pending"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=some.lists(STEP, max_size=40))
def test_the_same_steps_leave_the_same_line(store: Store, steps: list[tuple[str, int, tuple[int, int]]]) -> None:
    reference = MemoryStore(Space())
    key = SEPARATOR + fresh_id()
    claims: list[Claim] = []
    fences: list[int] = []
    for what, number, (units, capacity) in steps:
        if what in ("enter", "try") or not claims:
            claim = Claim(fresh_id(), Terms(key, units, capacity, LONG), "a test")
            claims.append(claim)
            wait = what != "try"
            answers = [run(each.enter(claim, Deaf() if wait else None, wait, False)) for each in (store, reference)]
            assert answers[0].state == answers[1].state
            if answers[0].state == "using":
                fences.append(answers[0].fence)
        else:
            claim = claims[number % len(claims)]
            steps_of = {
                "leave": lambda each, claim=claim: each.leave(claim),
                "renew": lambda each, claim=claim: each.renew([claim]),
                "evict": lambda each, claim=claim: each.evict(key, claim.id),
                "again": lambda each, claim=claim: each.enter(claim, Deaf(), True, True),
            }
            found = [run(steps_of[what](each)) for each in (store, reference)]
            if what == "again":
                assert found[0].state == found[1].state
            else:
                assert found[0] == found[1]
        assert line(store, key) == line(reference, key)
    assert fences == sorted(set(fences))
    for claim in claims:
        run(store.leave(claim))
    assert line(store, key) == []
