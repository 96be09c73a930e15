"""The verdict on one world: whether it is safe, live and fair in every interleaving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from model_checker.explore import Actor, System, Tag, explore
from model_checker.lasso import lasso
from model_checker.liveness import fair_cycle, stuck

Trace = tuple[str, ...]


class World(System[Any], Protocol):
    """A system in which something has to happen."""

    ends: bool = False
    """True if the good steps are ends: each actor does only so much."""

    def good(self, actor: Actor, tag: Tag) -> bool:
        """Return True for a step for which everybody waits."""

    def limited(self, actor: Actor, tag: Tag) -> bool:
        """Return True for a step that can't happen again and again: a fault."""

    def fair(self, actor: Actor) -> bool:
        """Return True for an actor that takes a step in the end if it always can."""

    def over(self, state: Any) -> bool:
        """Return True if nothing has to happen any more: all have finished, or are dead."""
        return False

    def entries(self) -> Mapping[Any, Tag]:
        """Return, for each actor that must not wait for ever, its name and the tag of the step that it waits for."""
        return {}

    def waits(self, state: Any, name: Any) -> bool:
        """Return True if one of these actors waits."""
        return True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one world.

    Attributes:
        states, steps: how many were visited.
        wrong: the nearest fault, None if all is right; it begins with its kind.
        trace: a shortest path to it.
        round: the steps that then repeat for ever, if the fault is a cycle.
        right: what was checked and found right.
    """

    states: int
    steps: int
    wrong: str | None = None
    trace: Trace = ()
    round: Trace = ()
    right: Trace = field(default=("safe",))

    def __str__(self) -> str:
        if self.wrong is None:
            return ", ".join(self.right)
        lines = [self.wrong, *(f"    {words}" for words in self.trace)]
        if self.round:
            lines += ["  and then again and again:", *(f"    {words}" for words in self.round)]
        return "\n".join(lines)


def verdict(world: World, *, live: bool = True, fair: bool = False) -> Verdict:
    """Explore a world and judge it.

    Args:
        world: the world.
        live: True to look for deadlocks and livelocks too.
        fair: True to look for starvation too.
    """
    graph = explore(world, edges=live)
    states, steps = len(graph), graph.edges
    if graph.wrong is not None:
        return Verdict(states, steps, graph.wrong, graph.trace(states - 1))
    if not live:
        return Verdict(states, steps)
    dead_end = stuck(graph, world.good, world.over)
    if dead_end is not None:
        return Verdict(states, steps, "stuck: no caller can ever enter again", graph.trace(dead_end))
    waiting = [_starvation(world, name, entry) for name, entry in world.entries().items()]
    for wrong, without, counts in waiting if fair else [_livelock(world)]:
        cycle = fair_cycle(graph, without, world.fair, counts)
        if cycle is not None:
            return Verdict(states, steps, wrong, *lasso(graph, cycle, without))
    right = ["safe", "all finish" if world.ends else "live"]
    return Verdict(states, steps, right=(*right, "nobody starves") if fair else tuple(right))


Forbidden = tuple[str, Callable[[Actor, Tag], bool], Callable[[Any], bool]]
"""A cycle that must not be: as text; the steps that are not in it; the states in which it counts."""


def _livelock(world: World) -> Forbidden:
    def without(actor: Actor, tag: Tag) -> bool:
        return world.good(actor, tag) or world.limited(actor, tag)

    return "livelock: no caller ever enters", without, lambda state: not world.over(state)


def _starvation(world: World, name: Any, entry: Tag) -> Forbidden:
    def without(actor: Actor, tag: Tag) -> bool:
        return tag == entry or world.limited(actor, tag)

    return f"starvation: {name} never enters, while others do", without, lambda state: world.waits(state, name)
