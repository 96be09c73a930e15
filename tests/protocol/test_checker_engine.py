"""The model checker judged by itself: what is broken is caught, what is right passes, what is hidden is noticed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from proof import (
    Automaton,
    Final,
    explore,
    fair_cycle,
    lasso,
    starvation,
    stuck,
)

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


def test_the_same_lock_without_order_can_starve_somebody_but_not_all() -> None:
    graph = explore(Processes({"lock": False}, spin, spin))
    assert graph.violation is None
    assert stuck(graph, enters) is None
    assert fair_cycle(graph, enters) is None
    starving = starvation(graph, {0: "enter0", 1: "enter1"}, lambda actor, tag: False)
    assert set(starving) == {0, 1}
    assert starving[0].actors == {0, 1}


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


def test_a_deadlock_is_found_with_the_shortest_trace() -> None:
    world = Processes({"a": False, "b": False}, two_locks("a", "b"), two_locks("b", "a"))
    graph = explore(world)
    assert graph.violation is None
    blocked = stuck(graph, enters, fine=finished(world))
    assert blocked is not None
    assert len(graph.trace(blocked)) == 2


def finished(world: Processes) -> Callable[[Any], bool]:
    """At least one has come through: nobody else needs to enter."""

    def fine(state: tuple[Any, ...]) -> bool:
        return any(isinstance(world.request(p, local), Final) for p, local in enumerate(state[2:]))

    return fine
