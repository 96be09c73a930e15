"""Breadth-first exploration of every reachable state of a system, with little memory for each state.

A state is a tuple of components. Each component is stored once and the state as their packed numbers; parents
and edges are flat arrays. A state costs some 250 bytes with its edges, so that ten million fit into 3 GB.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from operator import getitem
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

S = TypeVar("S", bound=tuple[Hashable, ...])
Actor = Hashable
Tag = Hashable
Successor = tuple[Actor, str, Tag, S]


def put(values: Sequence[Any], place: int, value: Any) -> tuple[Any, ...]:
    """Return a part of a state with another value in one place."""
    return (*values[:place], value, *values[place + 1 :])


class System(Protocol[S]):
    """A system that can be explored.

    A state is a tuple (or a NamedTuple) of hashable components, always the same number of them. A part of the state
    that changes independently (one process, for example) should be a component of its own.
    """

    def init(self) -> S:
        """Return the first state."""

    def successors(self, state: S) -> Iterable[Successor[S]]:
        """Return every possible step: its actor, its text, a tag for the liveness checks, the next state.

        The same state must always return the same steps in the same order.
        """

    def violation(self, state: S) -> str | None:
        """Return what is wrong with a state; None if it is right."""


class _Numbers(dict[Hashable, int]):
    """Numbers for values, in the order of their first use."""

    def __init__(self) -> None:
        super().__init__()
        self.values_in_order: list[Any] = []

    def __missing__(self, value: Hashable) -> int:
        number = self[value] = len(self.values_in_order)
        self.values_in_order.append(value)
        return number


class _Codec(Generic[S]):
    """Turns states into short byte strings and back."""

    def __init__(self, example: S) -> None:
        self._struct = Struct(f"{len(example)}I")
        self._numbers = [_Numbers() for _ in example]
        self._values = [numbers.values_in_order for numbers in self._numbers]
        self._make: Callable[[Iterable[Any]], S] = partial(tuple.__new__, type(example))

    def pack(self, state: S) -> bytes:
        return self._struct.pack(*map(getitem, self._numbers, state))

    def unpack(self, packed: bytes) -> S:
        return self._make(map(getitem, self._values, self._struct.unpack(packed)))


@dataclass(slots=True)
class Graph(Generic[S]):
    """The explored states, numbered from 0 (the first state) in the order of their distance from it.

    `wrong` is what is wrong with the last state; no wrong state is nearer to the start. Edges are kept in flat
    arrays: those of state i are at `first[i]` up to `first[i + 1]`; `target` is where they lead, `kind` the index of
    (actor, tag) in `kinds`.
    """

    system: System[S]
    wrong: str | None = None
    edges: int = 0
    kinds: list[tuple[Actor, Tag]] = field(default_factory=list)
    first: array[int] = field(default_factory=lambda: array("Q", [0]))
    target: array[int] = field(default_factory=lambda: array("I"))
    kind: array[int] = field(default_factory=lambda: array("H"))
    _codec: _Codec[S] = field(init=False)
    _packed: list[bytes] = field(default_factory=list)
    _parent: array[int] = field(default_factory=lambda: array("I", [0]))

    def __post_init__(self) -> None:
        self._codec = _Codec(self.system.init())

    def __len__(self) -> int:
        return len(self._packed)

    def state(self, number: int) -> S:
        """Return a state by its number."""
        return self._codec.unpack(self._packed[number])

    def states(self) -> Iterator[S]:
        """Yield all states in order."""
        return map(self._codec.unpack, self._packed)

    def trace(self, number: int) -> tuple[str, ...]:
        """Return a shortest path to a state, as text; steps with an empty label are left out."""
        way = [number]
        while way[-1]:
            way.append(self._parent[way[-1]])
        steps = [self.step(source, target) for source, target in pairwise(reversed(way))]
        return tuple(filter(None, steps))

    def step(self, source: int, target: int, actor: Actor | None = None) -> str:
        """Return the text of the step (of this actor, if given) between two states."""
        packed = self._packed[target]
        for who, label, _, state in self.system.successors(self.state(source)):
            if actor in (None, who) and self._codec.pack(state) == packed:
                return label
        raise KeyError(f"there is no such step from state {source} to state {target}")


def explore(system: System[S], *, edges: bool = True) -> Graph[S]:
    """Visit every reachable state, the nearest first, or those up to the first wrong one.

    Args:
        system: what to explore.
        edges: keep the edges, for the liveness checks. Without them a state costs about 200 bytes.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and collections over millions of tuples cost more than the search
    try:
        graph = Graph(system)
        _search(graph, edges)
    finally:
        if collecting:
            gc.enable()
    return graph


def _search(graph: Graph[S], keep_edges: bool) -> None:
    system, codec, packed_states = graph.system, graph._codec, graph._packed
    pack, unpack, successors, violation = codec.pack, codec.unpack, system.successors, system.violation
    kinds = _Numbers()
    graph.kinds = kinds.values_in_order
    add_parent, add_target, add_kind = graph._parent.append, graph.target.append, graph.kind.append
    start = system.init()
    index = {pack(start): 0}
    find = index.get
    packed_states.append(pack(start))
    graph.wrong = violation(start)
    visited = 0
    while visited < len(packed_states) and graph.wrong is None:
        for actor, _, tag, state in successors(unpack(packed_states[visited])):
            packed = pack(state)
            target = find(packed)
            if target is None:
                target = index[packed] = len(packed_states)
                packed_states.append(packed)
                add_parent(visited)
                graph.wrong = violation(state)
                if graph.wrong is not None:
                    return
            graph.edges += 1
            if keep_edges:
                add_target(target)
                add_kind(kinds[actor, tag])
        visited += 1
        if keep_edges:
            graph.first.append(graph.edges)
