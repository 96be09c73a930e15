"""A cycle as text: the path to it, and one round of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proof.explore import Graph
from proof.liveness import Cycle, StepTest


@dataclass(frozen=True, slots=True)
class Lasso:
    """A run without end: first `way`, then `round` repeatedly."""

    way: tuple[str, ...]
    round: tuple[str, ...]


def lasso(graph: Graph[Any], cycle: Cycle, without: StepTest) -> Lasso:
    """Return a shortest path to a cycle, and one round in which each of its actors takes a step.

    Args:
        graph: the graph in which the cycle was found.
        cycle: from `fair_cycle` or `starvation`.
        without: the same excluded steps as there.
    """
    inside = frozenset(cycle.states)
    allowed = [not without(actor, tag) for actor, tag in graph.kinds]
    waiting = set(cycle.actors)
    entry = here = cycle.states[0]
    steps: list[str] = []

    def walk(wanted: Callable[[int], bool]) -> int:
        state = here
        for source, edge in _leg(graph, here, lambda edge: allowed[graph.kind[edge]], inside, wanted):
            actor, _ = graph.kinds[graph.kind[edge]]
            state = graph.target[edge]
            steps.append(graph.step(source, state, actor))
            waiting.discard(actor)
        return state

    while waiting:
        here = walk(lambda edge: graph.kinds[graph.kind[edge]][0] in waiting)
    if here != entry:
        here = walk(lambda edge: graph.target[edge] == entry)
    return Lasso(graph.trace(entry), tuple(steps))


def _leg(
    graph: Graph[Any],
    start: int,
    allowed: Callable[[int], bool],
    inside: frozenset[int],
    wanted: Callable[[int], bool],
) -> list[tuple[int, int]]:
    """The shortest walk of (state, edge) inside a component that ends with a wanted edge."""
    came: dict[int, tuple[int, int]] = {}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for edge in range(graph.first[state], graph.first[state + 1]):
            following = graph.target[edge]
            if not allowed(edge) or following not in inside:
                continue
            if wanted(edge):
                leg = [(state, edge)]
                while leg[-1][0] != start:
                    leg.append(came[leg[-1][0]])
                return leg[::-1]
            if following not in came:
                came[following] = (state, edge)
                queue.append(following)
    raise ValueError("there is no such step in the cycle")
