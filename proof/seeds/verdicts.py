"""The verdict on each version of the original scheme, over every interleaving of a few clients."""

from __future__ import annotations

from dataclasses import dataclass

from proof.explore import Actor, Graph, Tag, explore
from proof.lasso import Lasso, lasso
from proof.liveness import can_reach, fair_cycle, sources, stuck
from proof.seeds.versions import VERSIONS, Version
from proof.seeds.world import CRASH, ENTER, Row, State, World

Trace = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The effect on other clients of crashes that leave the same records.

    `go_on`, `blocked`: the numbers of states just after the crash in which other clients can enter for ever, or can
    never enter again; `trace`: a shortest path to a blocked state, or None.
    """

    go_on: int
    blocked: int
    trace: Trace | None

    def __str__(self) -> str:
        if not self.blocked:
            return "others can go on"
        if not self.go_on:
            return "others blocked for ever"
        return f"others blocked for ever in {self.blocked} of {self.blocked + self.go_on} states"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the checker for one version.

    `two_holders`, `stuck`: a shortest path to such a state as text, or None; in a stuck state no client can ever
    enter again, although none has crashed. `livelock`: True if a fair scheduler allows that no client ever enters;
    `cycle` shows it. `crash`: the aftermaths, by the records that the crashed client left behind.
    """

    version: Version
    clients: int
    states: int
    two_holders: Trace | None
    livelock: bool
    cycle: Lasso | None
    stuck: Trace | None
    crash: dict[str, Aftermath]


def verdicts(clients: int) -> list[Verdict]:
    """Return the verdict on each version, in the order of the table.

    Args:
        clients: how many clients compete; 2 or 3 take seconds.
    """
    return [verdict(version, clients) for version in VERSIONS]


def verdict(version: Version, clients: int) -> Verdict:
    """Return the verdict on one version: all its states without crashes, then with one crash at any moment."""
    graph = explore(World(version, clients), stop_at_violation=False)
    cycle = fair_cycle(graph, _enters)
    dead_end = stuck(graph, _enters)
    return Verdict(
        version=version,
        clients=clients,
        states=len(graph),
        two_holders=graph.trace(graph.violation.state) if graph.violation else None,
        livelock=cycle is not None,
        cycle=lasso(graph, cycle, _enters) if cycle else None,
        stuck=None if dead_end is None else graph.trace(dead_end),
        crash=_after_crashes(version, clients),
    )


def _enters(actor: Actor, tag: Tag) -> bool:
    return tag == ENTER


def _after_crashes(version: Version, clients: int) -> dict[str, Aftermath]:
    graph = explore(World(version, clients, crashes=1), stop_at_violation=False)
    goes_on = can_reach(graph, sources(graph, _enters, recurring=True))
    after: dict[str, list[int]] = {}
    for number in range(len(graph)):
        for actor, tag, target in graph.outgoing(number):
            if tag == CRASH and isinstance(actor, tuple):
                after.setdefault(_left(graph.state(target), actor[1]), []).append(target)
    return {left: _aftermath(graph, sorted(set(states)), goes_on) for left, states in sorted(after.items())}


def _left(state: State, client: int) -> str:
    """The records of a client, as text."""
    rows: list[Row] = sorted(row for row in state[0] if row.owner == client)
    names = [f"{row.status} of an earlier call" if row.left_behind else str(row.status) for row in rows]
    return " + ".join(names) or "nothing"


def _aftermath(graph: Graph[State], states: list[int], goes_on: bytearray) -> Aftermath:
    blocked = [state for state in states if not goes_on[state]]
    return Aftermath(len(states) - len(blocked), len(blocked), graph.trace(blocked[0]) if blocked else None)
