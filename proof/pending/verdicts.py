"""The verdict on one world: whether it is safe, live and fair in every interleaving."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from proof.explore import Actor, Graph, Tag, explore
from proof.lasso import Lasso, lasso
from proof.liveness import fair_cycle, starvation, stuck
from proof.pending.options import NAMES, Options
from proof.pending.steps import END, ENVIRONMENT
from proof.pending.world import Parts, State, World, enters

Trace = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation.

    Attributes:
        kind: "two holders", "two records", "fence", "left behind", "nobody", "error", "stuck", "livelock" or
            "starvation".
        message: a description.
        trace: a shortest path to it.
        round: for a livelock, the steps that repeat.
    """

    kind: str
    message: str
    trace: Trace
    round: Trace = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one world.

    Attributes:
        states, steps: how many were visited.
        complete: True if these were all, False if the limit was reached.
        finding: the nearest violation; None if there is none.
        live, fair: True if deadlock and livelock, or starvation, were checked and not found.
        seconds: the duration of the check.
    """

    states: int
    steps: int
    complete: bool
    finding: Finding | None
    live: bool
    fair: bool
    seconds: float


def verdict(
    options: Options,
    parts: Parts | None = None,
    *,
    live: bool = True,
    fair: bool = False,
    limit: int | None = None,
) -> Verdict:
    """Explore a world and judge it.

    Args:
        options: the world.
        parts: the code; None for production's.
        live: True to look for deadlocks and livelocks too.
        fair: True to look for starvation too.
        limit: stop after so many states.
    """
    started = time.perf_counter()
    world = World(options, parts)
    graph = explore(world, edges=live or fair, limit=limit)
    finding = _safety(graph)
    if finding is None and graph.complete:
        finding = (_liveness(graph, world) if live else None) or (_fairness(graph, world) if fair else None)
    good = finding is None and graph.complete
    elapsed = time.perf_counter() - started
    return Verdict(len(graph), graph.edges, graph.complete, finding, good and live, good and fair, elapsed)


_KINDS = {
    "two holders": "two holders",
    "two unexpired": "two records",
    "fence": "fence",
    "all have tried": "nobody",
    "an error": "error",
}


def _safety(graph: Graph[State]) -> Finding | None:
    if graph.violation is None:
        return None
    message = graph.violation.message
    kind = next((kind for start, kind in _KINDS.items() if message.startswith(start)), "left behind")
    return Finding(kind, message, graph.trace(graph.violation.state))


def _liveness(graph: Graph[State], world: World) -> Finding | None:
    bounded = world.options.attempts is not None
    good: Callable[[Actor, Tag], bool] = (lambda actor, tag: tag == END) if bounded else enters
    dead_end = stuck(graph, good, fine=world.all_finished)
    if dead_end is not None:
        return Finding("stuck", "nobody can ever enter again", graph.trace(dead_end))
    cycle = fair_cycle(graph, _happens, _is_fair, lambda state: not world.all_finished(state))
    if cycle is None:
        return None
    circle: Lasso = lasso(graph, cycle, _happens)
    return Finding("livelock", "nobody enters, for ever", circle.way, circle.round)


def _fairness(graph: Graph[State], world: World) -> Finding | None:
    entries: dict[Actor, Tag] = {number: ("enter", number) for number in range(world.callers)}

    def excluded(actor: Actor, tag: Tag) -> bool:
        return _happens(actor, tag) and not enters(actor, tag)

    starved = starvation(
        graph, entries, excluded, _is_fair, lambda state, number: not world.finished(state, int(str(number)))
    )
    for number, cycle in starved.items():

        def without(actor: Actor, tag: Tag, number: Actor = number) -> bool:
            return excluded(actor, tag) or tag == ("enter", number)

        circle = lasso(graph, cycle, without)
        name = NAMES[int(str(number))]
        return Finding("starvation", f"{name} never enters, while others do", circle.way, circle.round)
    return None


def _happens(actor: Actor, tag: Tag) -> bool:
    """Return True for an entry into the critical section, and for a fault, whose number is limited."""
    return tag is not None and tag != END


def _is_fair(actor: Actor) -> bool:
    return actor != ENVIRONMENT
