"""The functions in the database against the memory store: the same answers to the same steps, on the same line."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.core.claims import SEPARATOR, WRITER_UNITS, Claim, LockSpec
from interlock.locks.connect import open_store
from interlock.runtime.sync import ThreadEvent, run
from interlock.stores.memory import MemoryStore, Space
from tests.servers import PostgresServer

KINDS = [(1, 1), (1, 3), (2, 3), (3, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)]
IDS = [f"id{number}" for number in range(6)]
STEPS = st.one_of(
    st.tuples(
        st.just("enter"), st.sampled_from(IDS), st.sampled_from(KINDS), st.sampled_from(["try", "wait", "again"])
    ),
    st.tuples(st.just("leave"), st.sampled_from(IDS)),
    st.tuples(st.just("renew"), st.lists(st.sampled_from(IDS), max_size=3, unique=True)),
    st.tuples(st.just("evict"), st.sampled_from([None, *IDS])),
)


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    """A store for threads."""
    store = open_store(url)
    yield store
    store.close()


def claim_of(id: str, kind: tuple[int, int], name: str) -> Claim:
    """Return the claim of that id."""
    return Claim(id, LockSpec(SEPARATOR + name, *kind, 60.0, "label"), "who")


def taken(
    store: Any, step: tuple[Any, ...], kinds: dict[str, tuple[int, int]], name: str, bells: dict[str, Any]
) -> Any:
    """Take a step; return its answer without what may differ: fences and seconds."""
    match step:
        case ("enter", id, _, mode):
            bell = None if mode == "try" else bells.setdefault(id, ThreadEvent())
            turn = run(store.enter(claim_of(id, kinds[id], name), bell, mode != "try", mode == "again"))
            return turn.state, turn.fence > 0
        case ("leave", id):
            return run(store.leave(claim_of(id, kinds.get(id, (1, 1)), name)))
        case ("renew", ids):
            return run(store.renew([claim_of(id, kinds.get(id, (1, 1)), name) for id in ids]))
        case ("evict", id):
            return run(store.evict(SEPARATOR + name, id))
    raise AssertionError(step)


def line_of(store: Any, name: str) -> list[Any]:
    """Return who stands in the line, in order."""
    return [(view.id, view.state, view.units, view.capacity) for view in run(store.look(SEPARATOR + name))]


def test_each_step_does_what_the_memory_store_does(store: Any) -> None:
    run(store.look(SEPARATOR))

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(steps=st.lists(STEPS, max_size=25))
    def play(steps: list[tuple[Any, ...]]) -> None:
        name = uuid4().hex
        memory = MemoryStore(Space())
        kinds: dict[str, tuple[int, int]] = {}
        bells: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        known: set[int] = set()
        for step in steps:
            if step[0] == "enter":
                there = {view.id for view in run(memory.look(SEPARATOR + name))}
                if step[1] not in there:
                    kinds[step[1]] = step[2]
            expected = taken(memory, step, kinds, name, bells[0])
            assert taken(store, step, kinds, name, bells[1]) == expected, step
            assert line_of(store, name) == line_of(memory, name), step
            fences = [view.fence for view in run(store.look(SEPARATOR + name)) if view.fence]
            assert len(set(fences)) == len(fences)
            assert all(fence > max(known, default=0) for fence in set(fences) - known)
            known |= set(fences)

    play()


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
