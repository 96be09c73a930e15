"""Steps of a line against those of the memory store, which is the plan: the same answers, on the same line."""

from typing import Any
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.core.claims import SEPARATOR, WRITER_UNITS, Claim, LockSpec
from interlock.runtime.sync import ThreadEvent, run
from interlock.stores.memory import MemoryStore, Space

Kind = tuple[int, int]
Step = tuple[Any, ...]

KINDS: list[Kind] = [(1, 1), (1, 3), (2, 3), (3, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)]
IDS = [f"id{number}" for number in range(6)]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(
        st.just("enter"), st.sampled_from(IDS), st.sampled_from(KINDS), st.sampled_from(["try", "wait", "again"])
    ),
    st.tuples(st.just("leave"), st.sampled_from(IDS)),
    st.tuples(st.just("renew"), st.lists(st.sampled_from(IDS), max_size=3, unique=True)),
    st.tuples(st.just("evict"), st.sampled_from([None, *IDS])),
)

CROWDS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.just("enter"), st.sampled_from(IDS), st.sampled_from(KINDS), st.just("wait")),
    min_size=2,
    max_size=len(IDS),
    unique_by=lambda step: step[1],
)
"""Who comes first: else few of the lines that Hypothesis makes have a waiter."""


def claim_of(id: str, kind: Kind, name: str) -> Claim:
    """Return the claim of that id."""
    return Claim(id, LockSpec(SEPARATOR + name, *kind, 60.0, "label"), "who")


def taken(store: Any, step: Step, kinds: dict[str, Kind], name: str, wakeups: dict[str, Any]) -> Any:
    """Take a step; return its answer without what may differ: fences and seconds."""
    match step:
        case ("enter", id, _, mode):
            wakeup = None if mode == "try" else wakeups.setdefault(id, ThreadEvent())
            result = run(store.enter(claim_of(id, kinds[id], name), wakeup, mode != "try", mode == "again"))
            return result.state, result.fence > 0
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


def play(store: Any, steps: list[Step]) -> None:
    """Take steps on a new name of a store and of a memory store.

    Raises:
        AssertionError: an answer or the line differs, or a fence is not higher than all before.
    """
    name = uuid4().hex
    memory = MemoryStore(Space())
    kinds: dict[str, Kind] = {}
    wakeups: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    known: set[int] = set()
    for step in steps:
        if step[0] == "enter":
            there = {view.id for view in run(memory.look(SEPARATOR + name))}
            if step[1] not in there:
                kinds[step[1]] = step[2]
        expected = taken(memory, step, kinds, name, wakeups[0])
        assert taken(store, step, kinds, name, wakeups[1]) == expected, step
        assert line_of(store, name) == line_of(memory, name), step
        fences = [view.fence for view in run(store.look(SEPARATOR + name)) if view.fence]
        assert len(set(fences)) == len(fences)
        assert all(fence > max(known, default=0) for fence in set(fences) - known)
        known |= set(fences)


def play_many(store: Any, examples: int = 300) -> None:
    """Play so many lists of steps that Hypothesis makes."""
    run(store.look(SEPARATOR))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(crowd=CROWDS, steps=st.lists(STEPS, min_size=5, max_size=20))
    def each(crowd: list[Step], steps: list[Step]) -> None:
        play(store, crowd + steps)

    each()
