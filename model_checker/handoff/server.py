"""The server: `core.line` on exclusive claims, and the promise of a hand-off when a claim enters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from interlock.core import line as steps
from interlock.core.claims import PENDING, USING, Claim, LockSpec
from interlock.core.line import IS_DONE, Line, Origin, QueuedClaim, StepResult, StoreTime

NOW = StoreTime(1, 0)
WHOLE = 2
"""The capacity of the lock; a writer takes all of it, a reader 1."""
OVER = 0
"""The `until` of an expired claim; others have a later one."""

Promise = tuple[str, int]
"""The claim before a successor, and the fence of the successor; "" and 0 without one."""
Promoted = tuple[tuple[str, int], ...]
"""The promoted claims, with their fences."""


def promise(line: Line, id: str) -> Promise:
    """Return the promise for a waiter: to succeed the claim before it, if that is of its process and exclusive."""
    at = next(number for number, place in enumerate(line.places) if place.id == id)
    before, mine = line.places[at - 1], line.places[at]
    if before.units != before.capacity or before.channel != mine.channel:
        return "", 0
    return before.id, mine.fence


def outcome(line: Line, step: StepResult) -> tuple[Line, Promoted]:
    """Return the line after a step, and the claims to notify: with a fence, or with 0 to look."""
    told = tuple((place.id, place.fence if place.state == USING else 0) for place in step.promoted)
    return line if step.line is None else step.line, told


class Server(NamedTuple):
    """The server's behaviour, from which a mutant can remove a safeguard."""

    promise: Callable[[Line, str], Promise] = promise
    outcome: Callable[[Line, StepResult], tuple[Line, Promoted]] = outcome

    def enter(
        self, line: Line, id: str, again: bool, whole: bool, once: bool
    ) -> tuple[Line, int | Promise | None, Promoted]:
        """Enter a claim, or return the state of one that entered before.

        Args:
            line: the line.
            id: the claim; it begins with the number of its process.
            again: True if it entered before.
            whole: False if the claim can't let in a successor.
            once: True if it is of a run of `once`.

        Returns:
            The line; the fence of a holder, the promise of a waiter, or None if the claim is gone or its run was
            completed before; the promoted claims.
        """
        known = {place.id for place in line.places}
        claim = Claim(id, LockSpec("", WHOLE if whole else 1, WHOLE, once=once))
        step = steps.enter(line, NOW, claim, Origin(channel=id[0]), True, again)
        after, told = self.outcome(line, step)
        place: QueuedClaim | None = None if step.answer == IS_DONE else step.answer
        if place is None:
            return after, None, told
        if place.state == USING:
            return after, place.fence, told
        return after, ("", 0) if id in known else self.promise(after, id), told

    def leave(self, line: Line, id: str, keep_for: int = 0) -> tuple[Line, bool, Promoted]:
        """Remove a claim; return the line, whether the claim was there, and the promoted claims to notify.

        Args:
            line: the line.
            id: the claim.
            keep_for: 1 to record that its run was completed.
        """
        step = steps.leave(line, NOW, id, keep_for)
        after, told = self.outcome(line, step)
        return after, bool(step.answer), told

    def take_along(self, line: Line, before: Sequence[str]) -> tuple[Line, Promoted]:
        """Remove the predecessors of a claim, in the same step as what follows."""
        told: Promoted = ()
        for id in before:
            line, _, promoted = self.leave(line, id)
            told += promoted
        return line, told

    def is_kept(self, line: Line, id: str) -> bool:
        """Renew the lease of a claim; return True if it holds the lock."""
        kept = bool(steps.renew(line, NOW, [id]).answer[0])
        return kept and not any(place.id == id and place.state == PENDING for place in line.places)

    def adopt(self, line: Line, old: str, new: str) -> tuple[Line, int]:
        """Give a claim a new id; return its fence, or 0 if it does not hold the lock."""
        after, fence, _ = self.downgrade(line, old, new, WHOLE)
        return after, fence

    def downgrade(self, line: Line, old: str, new: str, units: int = 1) -> tuple[Line, int, Promoted]:
        """Let a claim take fewer units; return its fence (0: it does not hold the lock), and the promoted claims."""
        step = steps.adopt(line, NOW, old, Claim(new, LockSpec("", units, WHOLE)), Origin(channel=new[0]))
        after, told = self.outcome(line, step)
        return after, 0 if step.answer is None else step.answer.fence, told

    def evict(self, line: Line, id: str) -> tuple[Line, Promoted]:
        """Evict a claim."""
        return self.outcome(line, steps.evict(line, NOW, id))


def expired(line: Line, id: str) -> Line:
    """Return the line after the lease of a claim has expired."""
    return line._replace(
        places=tuple(place._replace(until=OVER) if place.id == id else place for place in line.places)
    )


SERVER = Server()
