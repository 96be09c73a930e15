"""A cycle as text: the path to it, and one round of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from model_checker.explore import Graph
from model_checker.liveness import Cycle, StepTest


def lasso(graph: Graph[Any], cycle: Cycle, without: StepTest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a shortest path to a cycle, and one round in which each of its actors takes a step.

    Args:
        graph: the graph in which the cycle was found.
        cycle: from `fair_cycle`.
        without: the same excluded steps as there.
    """
    allowed = [not without(actor, tag) for actor, tag in graph.kinds]
    edges = {
        state: [edge for edge in range(graph.first[state], graph.first[state + 1]) if allowed[graph.kind[edge]]]
        for state in cycle.states
    }
    waiting = set(cycle.actors)
    entry = here = cycle.states[0]
    steps: list[str] = []

    def actor_of(edge: int) -> Any:
        return graph.kinds[graph.kind[edge]][0]

    def wanted(edge: int) -> bool:
        return actor_of(edge) in waiting if waiting else graph.target[edge] == entry

    while waiting or here != entry:
        for edge in _leg(graph, edges, here, wanted):
            steps.append(graph.step(here, graph.target[edge], actor_of(edge)))
            waiting.discard(actor_of(edge))
            here = graph.target[edge]
    return graph.trace(entry), tuple(steps)


def _leg(graph: Graph[Any], edges: dict[int, list[int]], start: int, wanted: Callable[[int], bool]) -> list[int]:
    """The edges of a shortest walk inside a component that ends with a wanted one."""
    ways: dict[int, list[int]] = {start: []}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for edge in edges[state]:
            following = graph.target[edge]
            if following not in edges:
                continue
            way = [*ways[state], edge]
            if wanted(edge):
                return way
            if following not in ways:
                ways[following] = way
                queue.append(following)
    raise ValueError("there is no such step in the cycle")
