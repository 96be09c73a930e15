"""The verdict on one world: whether it is safe, and whether every caller can always finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interlock.remote.waiters import Successors
from proof.explore import explore
from proof.handoff.configurations import Configuration
from proof.handoff.server import SERVER, Server
from proof.handoff.state import State
from proof.handoff.world import World
from proof.liveness import can_reach


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the checker for one configuration.

    Attributes:
        configuration: the world.
        states, steps: their numbers.
        seconds: the duration of the check.
        wrong: the finding; None if all is right.
        trace: a shortest path to it, as text.
    """

    configuration: Configuration
    states: int
    steps: int
    seconds: float
    wrong: str | None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.wrong is None:
            return f"{self.configuration.name}: safe and live in {self.states:,} states"
        return "\n".join([f"{self.configuration.name}: {self.wrong}", *(f"  {step}" for step in self.trace)])


def verdict(
    configuration: Configuration,
    make: Callable[[], Successors] = Successors,
    server: Server = SERVER,
    world: Callable[..., World] = World,
) -> Verdict:
    """Explore a configuration and judge it.

    Args:
        configuration: the callers, and the possible faults.
        make: makes the registry of a process, of the package or of a mutant.
        server: the server's behaviour.
        world: the world around them.
    """
    graph = explore(world(configuration, make, server))
    wrong, at = None, 0
    if graph.violation is not None:
        wrong, at = graph.violation.message, graph.violation.state
    else:
        ends = can_reach(graph, [number for number, state in enumerate(graph.states()) if _is_over(state)])
        if not all(ends):
            wrong, at = "somebody can never come to an end", ends.index(0)
    trace = graph.trace(at) if wrong else ()
    return Verdict(configuration, len(graph), graph.edges, graph.seconds, wrong, trace)


def _is_over(state: State) -> bool:
    return all(caller.phase in ("done", "dead") for caller in state.callers)
