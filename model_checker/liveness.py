"""Liveness checks on a completely explored graph: deadlock, livelock and starvation.

Deadlock: a state from which no good step can be reached. Livelock: a cycle without a good step that a fair scheduler
allows. Starvation: the same for the good steps of one actor. Fairness is weak: an actor that could take a step in
every state of the cycle takes one in it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from model_checker.explore import Actor, Graph, Tag

StepTest = Callable[[Actor, Tag], bool]


@dataclass(frozen=True, slots=True)
class Cycle:
    """A strongly connected set of states that a fair scheduler may never leave."""

    states: tuple[int, ...]
    """Numbers of the states; the first is the nearest to the start."""
    actors: frozenset[Actor]
    """The actors that take steps in it."""


def stuck(graph: Graph[Any], good: StepTest, fine: Callable[[Any], bool]) -> int | None:
    """Return the number of the nearest state from which no good step can be reached any more, or None.

    Args:
        graph: a complete graph.
        good: judges a step by its actor and tag.
        fine: returns True for such a state if no more step is required (all actors have finished, or are dead).
    """
    wanted = [good(actor, tag) for actor, tag in graph.kinds]
    first, source = _backwards(graph)
    reached = bytearray(len(graph))
    queue: deque[int] = deque()
    for state in range(len(graph)):
        if any(wanted[kind] for kind in graph.kind[graph.first[state] : graph.first[state + 1]]):
            reached[state] = 1
            queue.append(state)
    while queue:
        state = queue.popleft()
        for before in source[first[state] : first[state + 1]]:
            if not reached[before]:
                reached[before] = 1
                queue.append(before)
    return next((state for state, good in enumerate(reached) if not good and not fine(graph.state(state))), None)


def fair_cycle(
    graph: Graph[Any], without: StepTest, fair: Callable[[Actor], bool], where: Callable[[Any], bool]
) -> Cycle | None:
    """Return a cycle that a weakly fair scheduler may stay in for ever, or None.

    An actor can step in a state if any edge of it leaves the state. The cycle is fair if each actor that
    can step in all its states also takes a step in it.

    Args:
        graph: a complete graph.
        without: steps that the cycle must not take (good steps; crashes, whose number is limited).
        fair: the actors to which the scheduler must be fair.
        where: returns True for the nearest state of a cycle if the cycle counts (for example, if an actor lives).
    """
    actors = sorted({actor for actor, _ in graph.kinds}, key=repr)
    bit_of = {actor: 1 << number for number, actor in enumerate(actors)}
    bits = [bit_of[actor] for actor, _ in graph.kinds]
    must = sum(bit for actor, bit in bit_of.items() if fair(actor))
    dropped = [without(actor, tag) for actor, tag in graph.kinds]
    for states in components(graph, without):
        inside = set(states)
        moving, enabled = 0, must
        for state in states:
            here = 0
            for edge in range(graph.first[state], graph.first[state + 1]):
                kind = graph.kind[edge]
                here |= bits[kind]
                if not dropped[kind] and graph.target[edge] in inside:
                    moving |= bits[kind]
            enabled &= here
        if moving and not enabled & ~moving and where(graph.state(min(states))):
            return Cycle(tuple(sorted(states)), frozenset(a for a, bit in bit_of.items() if bit & moving))
    return None


def components(graph: Graph[Any], without: StepTest) -> Iterator[list[int]]:
    """Yield the strongly connected components of the graph without some steps (Tarjan 1972, iterative)."""
    dropped = [without(actor, tag) for actor, tag in graph.kinds]
    first, target, kind = graph.first, graph.target, graph.kind
    order = array("I", bytes(4 * len(graph)))
    low = array("I", bytes(4 * len(graph)))
    open_states: list[int] = []
    is_open = bytearray(len(graph))
    counter = 0
    for root in range(len(graph)):
        if order[root]:
            continue
        calls, cursors = [root], [first[root]]
        while calls:
            state, edge = calls[-1], cursors[-1]
            if not order[state]:
                counter += 1
                order[state] = low[state] = counter
                open_states.append(state)
                is_open[state] = 1
            last = first[state + 1]
            while edge < last:
                following = target[edge]
                if not dropped[kind[edge]]:
                    if not order[following]:
                        break
                    if is_open[following] and low[following] < low[state]:
                        low[state] = low[following]
                edge += 1
            cursors[-1] = edge
            if edge < last:
                calls.append(following)
                cursors.append(first[following])
                continue
            calls.pop()
            cursors.pop()
            if low[state] == order[state]:
                yield _closed(state, open_states, is_open)


def _closed(root: int, open_states: list[int], is_open: bytearray) -> list[int]:
    """Remove one finished component from the open states."""
    component = []
    while True:
        state = open_states.pop()
        is_open[state] = 0
        component.append(state)
        if state == root:
            return component


def _backwards(graph: Graph[Any]) -> tuple[array[int], array[int]]:
    """The reversed edges: those into state i come from `source[first[i] : first[i + 1]]`."""
    free = array("Q", bytes(8 * (len(graph) + 2)))  # shifted by two: filling moves each start to its place
    for target in graph.target:
        free[target + 2] += 1
    for state in range(2, len(free)):
        free[state] += free[state - 1]
    source = array("I", bytes(4 * len(graph.target)))
    for state in range(len(graph)):
        for target in graph.target[graph.first[state] : graph.first[state + 1]]:
            source[free[target + 1]] = state
            free[target + 1] += 1
    return free, source
