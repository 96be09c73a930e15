"""Mutants with one safeguard removed: the checker must catch each, or the safeguard would not be needed."""

from __future__ import annotations

from functools import partial

from interlock.core.line import Line, StepResult
from model_checker.changes import Change, Mutant, changed
from model_checker.handoff.configurations import Configuration
from model_checker.handoff.server import SERVER, Promise, Promoted, outcome
from model_checker.handoff.state import State
from model_checker.handoff.world import World
from model_checker.verdicts import Verdict, verdict

SUCCESSORS = "interlock.runtime.waiters"


def judged(mutant: Mutant) -> Verdict:
    """Explore the world of a mutant."""
    if isinstance(mutant.change, Change):
        module = changed(mutant.change)
        return verdict(World(mutant.world, module.Successors, hand_over=module.HandOver))
    return verdict(mutant.change(mutant.world))


class _Trusting(World):
    """Trusts a promise although the server no longer had the claim that let the successor in."""

    def doubts(self, state: State, id: str) -> State:
        return state


class _Believing(World):
    """Counts a detached claim among those that the process holds."""

    holds_tokens = True


def _promises_the_holder(line: Line, id: str) -> Promise:
    """Make every waiter the successor of the holder."""
    place = next(place for place in line.places if place.id == id)
    return line.places[0].id, place.fence


def _issues_another(line: Line, step: StepResult) -> tuple[Line, Promoted]:
    """Give each promoted claim a new fence."""
    after, told = outcome(line, step)
    ids = {id for id, _ in told}
    top = after.max_fence + len(ids)
    places = tuple(place._replace(fence=top) if place.id in ids else place for place in after.places)
    return after._replace(places=places, max_fence=top), tuple((id, top) for id in ids)


_UNNAMED = Change(SUCCESSORS, "[each.before for each in unanswered]", "[]")

MUTANTS = (
    Mutant(
        "only a holder lets its successor in",
        "hold the lock",
        Configuration("three of one process, one gives up", (0, 0, 0), cancels=1),
        Change(SUCCESSORS, "held = self._held.pop(id, None)", "held = self._held.pop(id, ())"),
    ),
    Mutant(
        "a new successor takes the place of the old one",
        "disagree",
        Configuration("three of one process, a lease ends", (0, 0, 0), lapses=1),
        Change(SUCCESSORS, "if former is not None:", "if False:"),
    ),
    Mutant(
        "a promise is void if the server no longer had the released claim",
        "is void",
        Configuration("three of one process, the server forgets", (0, 0, 0), forgets=1),
        _Trusting,
    ),
    Mutant(
        "a claim is the successor only of the claim right before it",
        "hold the lock",
        Configuration("three of one process", (0, 0, 0)),
        partial(World, server=SERVER._replace(promise=_promises_the_holder)),
    ),
    Mutant(
        "a promoted successor keeps its fence",
        "is granted after",
        Configuration("one and two", (0, 1, 1)),
        partial(World, server=SERVER._replace(outcome=_issues_another)),
    ),
    Mutant(
        "the end of a run lists its predecessors",
        "is completing a lock that it no longer held",
        Configuration("two of one process, runs of once", (0, 0), runs=True),
        _UNNAMED,
    ),
    Mutant(
        "a detach lists its predecessors",
        "is detaching a lock that it no longer held",
        Configuration("two of one process, a token", (0, 0), detaches=1),
        _UNNAMED,
    ),
    Mutant(
        "a downgrade lists its predecessors",
        "is downgrading a lock that it no longer held",
        Configuration("two of one process, a downgrade", (0, 0), downgrades=1),
        _UNNAMED,
    ),
    Mutant(
        "a renewal lists its predecessors",
        "but no other claim took the lock",
        Configuration("two of one process, a renewal", (0, 0), renewals=1, reorders=True),
        _UNNAMED,
    ),
    Mutant(
        "a release counts as successful if a successor's request removed its claim",
        "is leaving a lock that it no longer held",
        Configuration("two of one process, runs of once", (0, 0), runs=True),
        Change(SUCCESSORS, "return removed or self.carried", "return removed"),
    ),
    Mutant(
        "a predecessor stays in the list until the reply to its release, however many successors follow",
        "is completing a lock that it no longer held",
        Configuration("three of one process, runs of once", (0, 0, 0), runs=True),
        Change(SUCCESSORS, "self._held[next] = (*chain, made)", "self._held[next] = (made,)"),
    ),
    Mutant(
        "a claim that gave up stays in the list until the reply to its departure",
        "is completing a lock that it no longer held",
        Configuration("three of one process, runs of once, one gives up", (0, 0, 0), runs=True, cancels=1),
        Change(SUCCESSORS, "self.follow(before, next, fence, (*chain, made))", "self.follow(before, next, fence)"),
    ),
    Mutant(
        "a detached claim is not held by this process, so its release lets no successor in",
        "hold the lock",
        Configuration("two and one, a token, used twice", (0, 0, 1), detaches=1, releases=1),
        _Believing,
    ),
)
