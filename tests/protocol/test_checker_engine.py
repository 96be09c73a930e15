"""The model checker judged by itself: what is broken is caught, what is right passes, what is hidden is noticed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proof import (
    Automaton,
    Final,
    Graph,
    can_reach,
    explore,
    fair_cycle,
    lasso,
    sources,
    starvation,
    stuck,
)
from proof.liveness import components

Protocol = Generator[tuple[Any, ...], Any, Any]

# ---- a world for mutexes: shared variables, processes, crashes


class Processes:
    """Processes that read and write shared variables; a state is the variables, then the processes."""

    def __init__(self, variables: dict[str, Any], *protocols: Callable[[], Protocol], crashes: int = 0) -> None:
        self.names = list(variables)
        self.start = tuple(variables.values())
        self.automata = [Automaton(protocol) for protocol in protocols]
        self.crashes = crashes

    def init(self) -> tuple[Any, ...]:
        return (self.start, 0, *(automaton.start for automaton in self.automata))

    def violation(self, state: tuple[Any, ...]) -> str | None:
        inside = [p for p, local in enumerate(state[2:]) if local is not None and self.request(p, local)[0] == "work"]
        return f"both inside: {inside}" if len(inside) > 1 else None

    def request(self, process: int, local: int) -> tuple[Any, ...]:
        request: tuple[Any, ...] = self.automata[process].requests[local]
        return request

    def successors(self, state: tuple[Any, ...]) -> Iterator[tuple[Any, Any, Any, tuple[Any, ...]]]:
        variables, crashed, *locals_ = state
        for process, local in enumerate(locals_):
            if local is None or isinstance(self.request(process, local), Final):
                continue
            for result, after in self.answers(variables, self.request(process, local)):
                target = self.automata[process].step(local, result)
                tag = f"enter{process}" if self.request(process, target)[0] == "work" else None
                label = ("{}: {}", process, self.request(process, local))
                yield process, label, tag, (after, crashed, *replaced(locals_, process, target))
            if crashed < self.crashes:
                yield (
                    "env",
                    f"{process} crashes",
                    "crash",
                    (variables, crashed + 1, *replaced(locals_, process, None)),
                )

    def answers(self, variables: tuple[Any, ...], request: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        match request:
            case ("read", name):
                yield variables[self.names.index(name)], variables
            case ("write", name, value):
                yield None, tuple(replaced(variables, self.names.index(name), value))
            case ("test_and_set", name):
                place = self.names.index(name)
                yield variables[place], tuple(replaced(variables, place, True))
            case _:
                yield None, variables


def replaced(items: Any, place: int, value: Any) -> list[Any]:
    result = list(items)
    result[place] = value
    return result


def enters(actor: Any, tag: Any) -> bool:
    return str(tag).startswith("enter")


def look_then_set() -> Protocol:
    while True:
        while (yield ("read", "lock")):
            yield ("pause",)
        yield ("write", "lock", True)
        yield ("work",)
        yield ("write", "lock", False)


def spin() -> Protocol:
    while True:
        while (yield ("test_and_set", "lock")):
            yield ("pause",)
        yield ("work",)
        yield ("write", "lock", False)


def peterson(me: int) -> Callable[[], Protocol]:
    def protocol() -> Protocol:
        other = 1 - me
        while True:
            yield ("write", f"wants{me}", True)
            yield ("write", "turn", other)
            while (yield ("read", f"wants{other}")):
                whose = yield ("read", "turn")
                if whose == me:
                    break
            yield ("work",)
            yield ("write", f"wants{me}", False)

    return protocol


def too_polite(me: int) -> Callable[[], Protocol]:
    def protocol() -> Protocol:
        while True:
            yield ("write", f"wants{me}", True)
            other = yield ("read", f"wants{1 - me}")
            if not other:
                yield ("work",)
            yield ("write", f"wants{me}", False)

    return protocol


def two_locks(first: str, second: str) -> Callable[[], Protocol]:
    def protocol() -> Protocol:
        for name in (first, second):
            while (yield ("test_and_set", name)):
                pass
        yield ("work",)
        for name in (first, second):
            yield ("write", name, False)

    return protocol


def peterson_world(crashes: int = 0) -> Processes:
    variables = {"wants0": False, "wants1": False, "turn": 0}
    return Processes(variables, peterson(0), peterson(1), crashes=crashes)


# ---- what the checker finds


def test_a_broken_mutex_is_caught_with_the_shortest_trace() -> None:
    graph = explore(Processes({"lock": False}, look_then_set, look_then_set))
    assert graph.violation is not None
    assert not graph.complete
    assert graph.violation.message == "both inside: [0, 1]"
    trace = graph.trace(graph.violation.state)
    assert sorted(trace) == [
        "0: ('read', 'lock')",
        "0: ('write', 'lock', True)",
        "1: ('read', 'lock')",
        "1: ('write', 'lock', True)",
    ]
    assert trace[:2] == ("0: ('read', 'lock')", "1: ('read', 'lock')")


def test_petersons_algorithm_is_safe_live_and_fair() -> None:
    graph = explore(peterson_world())
    assert graph.complete
    assert graph.violation is None
    assert stuck(graph, enters) is None
    assert fair_cycle(graph, enters) is None
    assert starvation(graph, {0: "enter0", 1: "enter1"}, lambda actor, tag: False) == {}


def test_a_crash_in_petersons_algorithm_blocks_the_other() -> None:
    graph = explore(peterson_world(crashes=1))
    assert graph.violation is None
    blocked = stuck(graph, enters)
    assert blocked is not None
    assert "crashes" in graph.trace(blocked)[-1]
    everybody_is_dead = stuck(explore(peterson_world(crashes=2)), enters, fine=lambda state: state[1] > 0)
    assert everybody_is_dead is None


def test_the_same_lock_without_order_can_starve_somebody_but_not_all() -> None:
    graph = explore(Processes({"lock": False}, spin, spin))
    assert graph.violation is None
    assert stuck(graph, enters) is None
    assert fair_cycle(graph, enters) is None
    starving = starvation(graph, {0: "enter0", 1: "enter1"}, lambda actor, tag: False)
    assert set(starving) == {0, 1}
    assert starving[0].actors == {0, 1}


def test_who_has_crashed_does_not_starve() -> None:
    """A cycle counts only for those that are still waiting in it."""
    graph = explore(peterson_world(crashes=1))

    def crash(actor: Any, tag: Any) -> bool:
        return bool(tag == "crash")

    entries = {0: "enter0", 1: "enter1"}
    starving = starvation(graph, entries, crash, lambda actor: actor != "env")
    assert set(starving) == {0, 1}
    alive = starvation(
        graph, entries, crash, lambda actor: actor != "env", lambda state, actor: state[2 + actor] is not None
    )
    assert alive  # blocked by one that crashed while it wanted to enter
    for actor, cycle in alive.items():
        assert graph.state(cycle.states[0])[2 + actor] is not None
    whole = starvation(graph, entries, crash, lambda actor: actor != "env", lambda state, actor: not state[1])
    assert whole == {}


def test_a_livelock_is_found_and_told_as_a_round() -> None:
    graph = explore(Processes({"wants0": False, "wants1": False}, too_polite(0), too_polite(1)))
    assert graph.violation is None
    assert stuck(graph, enters) is None
    cycle = fair_cycle(graph, enters)
    assert cycle is not None
    assert cycle.actors == {0, 1}
    told = lasso(graph, cycle, enters)
    assert told.way == ()
    assert len(told.round) >= 6
    assert {step[0] for step in told.round} == {"0", "1"}
    assert not any("work" in step for step in told.round)


def test_an_unfair_cycle_is_no_livelock() -> None:
    """One process alone can only go round while the other waits if the scheduler forgets the other."""
    graph = explore(Processes({"lock": False}, spin, spin))
    assert fair_cycle(graph, enters) is None
    only_first = fair_cycle(graph, enters, fair=lambda actor: actor == 1)
    assert only_first is not None
    assert only_first.actors == {1}


def test_a_deadlock_is_found_with_the_shortest_trace() -> None:
    world = Processes({"a": False, "b": False}, two_locks("a", "b"), two_locks("b", "a"))
    graph = explore(world)
    assert graph.violation is None
    blocked = stuck(graph, enters, fine=finished(world))
    assert blocked is not None
    assert len(graph.trace(blocked)) == 2


def test_one_order_of_locks_has_no_deadlock() -> None:
    world = Processes({"a": False, "b": False}, two_locks("a", "b"), two_locks("a", "b"))
    assert stuck(explore(world), enters, fine=finished(world)) is None


def finished(world: Processes) -> Callable[[Any], bool]:
    """At least one has come through: nobody else needs to enter."""

    def fine(state: tuple[Any, ...]) -> bool:
        return any(isinstance(world.request(p, local), Final) for p, local in enumerate(state[2:]))

    return fine


# ---- exploration itself


class Counter:
    """Counts up by one or two; states are NamedTuples."""

    class State(NamedTuple):
        value: int
        word: str

    def __init__(self, last: int) -> None:
        self.last = last

    def init(self) -> State:
        return self.State(0, "start")

    def violation(self, state: State) -> str | None:
        assert isinstance(state, self.State)
        return "too far" if state.value > self.last else None

    def successors(self, state: State) -> Iterator[tuple[str, Any, Any, State]]:
        assert isinstance(state, self.State)
        if state.value <= self.last:
            yield "one", "", None, self.State(state.value + 1, "on")
            yield "two", ("from {} by {}", state.value, 2), "big", state._replace(value=state.value + 2)


def test_states_come_back_as_they_were_put_in_and_labels_are_told_late() -> None:
    graph = explore(Counter(3), stop_at_violation=False)
    assert graph.complete
    assert graph.state(0) == Counter.State(0, "start")
    assert all(isinstance(state, Counter.State) for state in graph.states())
    assert graph.violation is not None
    assert graph.violation.message == "too far"
    assert graph.trace(graph.violation.state) == ("from 0 by 2", "from 2 by 2")
    assert [graph.state(number).value for number in graph.path(graph.violation.state)] == [0, 2, 4]
    assert list(graph.outgoing(0)) == [("one", None, 1), ("two", "big", 2)]
    with pytest.raises(KeyError, match="no such step"):
        graph.step(0, 0)


def test_a_limit_stops_the_search_and_liveness_refuses_what_is_not_complete() -> None:
    graph = explore(Counter(1000), limit=50)
    assert not graph.complete
    assert 50 < len(graph) < 60
    with pytest.raises(ValueError, match="complete graph"):
        can_reach(graph, [0])


def test_without_edges_the_states_are_the_same_but_liveness_refuses() -> None:
    full = explore(peterson_world())
    bare = explore(peterson_world(), edges=False)
    assert list(bare.states()) == list(full.states())
    assert bare.edges == full.edges == len(full.target)
    assert not bare.target
    with pytest.raises(ValueError, match="edges"):
        fair_cycle(bare, enters)


def test_progress_is_reported_and_a_first_state_can_be_wrong() -> None:
    heard: list[tuple[int, int]] = []
    explore(Counter(100_000), stop_at_violation=False, progress=lambda *numbers: heard.append(numbers))
    assert [visited for visited, _ in heard] == [100_000]
    graph = explore(Counter(-1))
    assert graph.violation is not None
    assert graph.violation.state == 0


class Arrows:
    """A graph given by its arrows."""

    def __init__(self, arrows: list[tuple[int, int]]) -> None:
        self.arrows = arrows

    def init(self) -> tuple[int]:
        return (0,)

    def violation(self, state: tuple[int]) -> None:
        return None

    def successors(self, state: tuple[int]) -> Iterator[tuple[int, str, int, tuple[int]]]:
        for source, target in self.arrows:
            if source == state[0]:
                yield source, f"to {target}", target, (target,)


def reachable(graph: Graph[Any], start: int, allowed: Callable[[int], bool] = lambda tag: True) -> set[int]:
    seen, queue = {start}, deque([start])
    while queue:
        for _, tag, target in graph.outgoing(queue.popleft()):
            if allowed(tag) and target not in seen:
                seen.add(target)
                queue.append(target)
    return seen


numbers = st.integers(0, 7)


@given(st.lists(st.tuples(numbers, numbers), max_size=24), numbers)
def test_reachability_and_components_agree_with_their_definitions(
    arrows: list[tuple[int, int]], avoided: int
) -> None:
    graph = explore(Arrows(arrows))
    everywhere = range(len(graph))
    leads_to = [reachable(graph, state) for state in everywhere]
    last = len(graph) - 1
    assert [state for state in everywhere if can_reach(graph, [last])[state]] == [
        state for state in everywhere if last in leads_to[state]
    ]
    around = [reachable(graph, state, lambda tag: tag != avoided) for state in everywhere]
    found = sorted(sorted(component) for component in components(graph, lambda actor, tag: tag == avoided))
    expected = {tuple(b for b in everywhere if b in around[a] and a in around[b]) for a in everywhere}
    assert found == sorted(map(list, expected))
    recurring = sources(graph, lambda actor, tag: True, recurring=True)
    assert recurring == [
        state for state in everywhere if any(state in leads_to[target] for _, _, target in graph.outgoing(state))
    ]


@given(st.lists(st.tuples(numbers, numbers), max_size=24))
def test_a_fair_cycle_is_a_cycle_and_its_lasso_can_be_walked(arrows: list[tuple[int, int]]) -> None:
    """Each state is an actor of its own here, so every cycle is fair."""
    graph = explore(Arrows(arrows))
    cycle = fair_cycle(graph, lambda actor, tag: False)
    cyclic = any(
        state in reachable(graph, target) for state in range(len(graph)) for _, _, target in graph.outgoing(state)
    )
    assert (cycle is not None) == cyclic
    if cycle is not None:
        told = lasso(graph, cycle, lambda actor, tag: False)
        assert told.round
        start = graph.state(cycle.states[0])[0]
        assert told.round[-1] == f"to {start}"
