"""Mutants with one safeguard removed: the checker must catch each, or the safeguard would not be needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interlock.core.line import Line, Step
from interlock.remote.waiters import Successors
from proof.changes import Change, changed
from proof.handoff.configurations import Configuration
from proof.handoff.server import SERVER, Promise, Promoted, Server, outcome
from proof.handoff.state import State
from proof.handoff.world import World
from proof.verdicts import Verdict, verdict

SUCCESSORS = "interlock.remote.waiters"

_CANCEL = Configuration("three of one process, one gives up", (0, 0, 0), cancels=1)
_LAPSE = Configuration("three of one process, a lease ends", (0, 0, 0), lapses=1)
_FORGET = Configuration("three of one process, the server forgets", (0, 0, 0), forgets=1)
_ONE = Configuration("three of one process", (0, 0, 0))
_BEHIND = Configuration("one and two", (0, 1, 1))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard removed.

    Attributes:
        name: the removed safeguard.
        expected: a part of the finding.
        world: the world in which it is caught.
        change: a change in the registry of a process.
        server: the server's behaviour.
        model: makes the system to explore.
    """

    name: str
    expected: str
    world: Configuration
    change: Change | None = None
    server: Server = SERVER
    model: Callable[..., World] = World


def judged(mutant: Mutant) -> Verdict:
    """Explore the world of a mutant."""
    make = Successors if mutant.change is None else changed(mutant.change).Successors
    return verdict(mutant.model(mutant.world, make, mutant.server))


class _Trusting(World):
    """Trusts a promise although the server no longer had the claim that let the successor in."""

    def doubts(self, state: State, id: str) -> State:
        return state


def _promises_the_holder(line: Line, id: str) -> Promise:
    """Make every waiter the successor of the holder."""
    place = next(place for place in line.places if place.id == id)
    return line.places[0].id, place.fence


def _issues_another(line: Line, step: Step) -> tuple[Line, Promoted]:
    """Give each promoted claim a new fence."""
    after, told = outcome(line, step)
    ids = {id for id, _ in told}
    top = after.top + len(ids)
    places = tuple(place._replace(fence=top) if place.id in ids else place for place in after.places)
    return after._replace(places=places, top=top), tuple((id, top) for id in ids)


MUTANTS = (
    Mutant(
        "only a holder lets its successor in",
        "hold the lock",
        _CANCEL,
        Change(SUCCESSORS, "if held and hands_over:", "if hands_over:"),
    ),
    Mutant(
        "a new successor takes the place of the old one",
        "disagree",
        _LAPSE,
        Change(SUCCESSORS, "if former is not None:", "if False:"),
    ),
    Mutant("a promise is void if the server no longer had the released claim", "is void", _FORGET, model=_Trusting),
    Mutant(
        "a claim is the successor only of the claim right before it",
        "hold the lock",
        _ONE,
        server=SERVER._replace(promise=_promises_the_holder),
    ),
    Mutant(
        "a promoted successor keeps its fence",
        "gets in after",
        _BEHIND,
        server=SERVER._replace(outcome=_issues_another),
    ),
)
