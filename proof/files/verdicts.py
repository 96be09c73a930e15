"""The verdict on one world: whether it is safe, and whether every waiter becomes a holder in the end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from proof.explore import Actor, Graph, Tag, explore
from proof.files.client import Begin, Hold
from proof.files.configurations import Configuration
from proof.files.production import PRODUCTION, Production
from proof.files.state import FAULT, NAMES, State, enters
from proof.files.world import World
from proof.lasso import lasso
from proof.liveness import starvation, stuck


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the checker for one configuration.

    `wrong`: the finding, None if all is right; `trace`: a shortest path to it, as text; `round`: the cycle of a
    liveness fault; `complete`: True if every reachable state was visited.
    """

    configuration: Configuration
    states: int
    steps: int
    complete: bool
    seconds: float
    wrong: str | None
    trace: tuple[str, ...] = ()
    round: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.wrong is None:
            return f"{self.configuration.name}: safe and live in {self.states:,} states"
        lines = [f"{self.configuration.name}: {self.wrong}", *(f"  {step}" for step in self.trace)]
        if self.round:
            lines += ["and then for ever:", *(f"  {step}" for step in self.round)]
        return "\n".join(lines)


def verdict(configuration: Configuration, production: Production = PRODUCTION, limit: int | None = None) -> Verdict:
    """Explore a configuration and judge it.

    Args:
        configuration: the callers, and the possible faults.
        production: the code, of the package or of a mutant.
        limit: stop when there are more states than this; the verdict is then not `complete`.
    """
    world = World(configuration, production)
    graph = explore(world, limit=limit)

    found = partial(_verdict, configuration, graph)
    if graph.violation is not None:
        return found(graph.violation.message, graph.trace(graph.violation.state))
    if not graph.complete:
        return found(None)
    return _live(world, graph) or found(None)


def _verdict(
    configuration: Configuration,
    graph: Graph[State],
    wrong: str | None,
    trace: tuple[str, ...] = (),
    round: tuple[str, ...] = (),
) -> Verdict:
    return Verdict(configuration, len(graph), graph.edges, graph.complete, graph.seconds, wrong, trace, round)


def _live(world: World, graph: Graph[State]) -> Verdict | None:
    found = partial(_verdict, world.configuration, graph)
    tags = [enters(NAMES[number]) for number in range(len(world.roles))]
    dead_end = stuck(graph, lambda actor, tag: tag in tags, fine=_all_dead)
    if dead_end is not None:
        return found("nobody can ever hold the lock any more", graph.trace(dead_end))
    patient: dict[Actor, Tag] = {
        number: tags[number] for number, role in enumerate(world.roles) if role.wait and not role.times_out
    }

    def waits(state: Any, actor: Actor) -> bool:
        caller = state[3 + int(str(actor))]
        return not caller.dead and not isinstance(world.request(int(str(actor)), caller), Begin | Hold)

    starving = starvation(graph, patient, _fault, _owes_a_step, waits)
    for actor, cycle in starving.items():

        def excluded(who: Actor, tag: Tag, entry: Tag = patient[actor]) -> bool:
            return tag == entry or _fault(who, tag)

        circle = lasso(graph, cycle, excluded)
        return found(f"{NAMES[int(str(actor))]} may wait for ever", circle.way, circle.round)
    return None


def _fault(actor: Actor, tag: Tag) -> bool:
    return tag == FAULT


def _owes_a_step(actor: Actor) -> bool:
    """Return True for an actor whose steps must be taken in the end: a caller within a call."""
    return isinstance(actor, int)


def _all_dead(state: State) -> bool:
    return all(caller.dead for caller in state[3:])
