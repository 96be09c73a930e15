"""The server: `core.line` on exclusive claims, and what it says of successors when a claim enters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from interlock.core import line as steps
from interlock.core.claims import USING, Claim, LockSpec
from interlock.core.line import Clock, Line, Origin, Place, Step

NOW = Clock(1, 0)
OVER = 0
"""When the lease of a claim that has expired ended; the others' end later."""

Promise = tuple[str, int]
"""The claim whose successor one is, and the fence; "" and 0 if of none."""
Promoted = tuple[tuple[str, int], ...]
"""Those who hold the lock now, with their fences."""


def promise(line: Line, id: str) -> Promise:
    """Say whose successor a waiter is: of the one right before it, if that is of its process and wants it all."""
    at = next(number for number, place in enumerate(line.places) if place.id == id)
    before, mine = line.places[at - 1], line.places[at]
    if before.units != before.capacity or before.channel != mine.channel:
        return "", 0
    return before.id, mine.fence


def outcome(line: Line, step: Step) -> tuple[Line, Promoted]:
    """Return what a step makes of a line, and who is to be told: with 0, to look."""
    told = tuple((place.id, place.fence if place.state == USING else 0) for place in step.promoted)
    return line if step.line is None else step.line, told


class Server(NamedTuple):
    """What the server does, so that a safeguard can be taken out."""

    promise: Callable[[Line, str], Promise] = promise
    outcome: Callable[[Line, Step], tuple[Line, Promoted]] = outcome

    def enter(self, line: Line, id: str, again: bool, whole: bool) -> tuple[Line, int | Promise | None, Promoted]:
        """A claim enters, or asks where it stands.

        Args:
            line: the line.
            id: the claim; it begins with the number of its process.
            again: True if it only asks.
            whole: False if it can't have a successor.

        Returns:
            The line; the fence if it holds the lock, else what it waits for, None if it is gone; who was promoted.
        """
        known = {place.id for place in line.places}
        claim = Claim(id, LockSpec("", 1, 1 if whole else 2))
        step = steps.enter(line, NOW, claim, Origin(channel=id[0]), True, again)
        after, told = self.outcome(line, step)
        place: Place | None = step.answer
        if place is None:
            return after, None, told
        if place.state == USING:
            return after, place.fence, told
        return after, ("", 0) if id in known else self.promise(after, id), told

    def leave(self, line: Line, id: str, let_in: str) -> tuple[Line, bool, Promoted]:
        """A claim leaves; returns the line, whether it was there, and who is to be told that it holds the lock."""
        step = steps.leave(line, NOW, id)
        after, told = self.outcome(line, step)
        return after, bool(step.answer), tuple(each for each in told if each[0] != let_in)

    def is_kept(self, line: Line, id: str) -> bool:
        """Renew the lease of a claim; tell whether it was there."""
        return bool(steps.renew(line, NOW, [id]).answer[0])

    def evict(self, line: Line, id: str) -> tuple[Line, Promoted]:
        """Take a claim out."""
        return self.outcome(line, steps.evict(line, NOW, id))


def expired(line: Line, id: str) -> Line:
    """Return the line after the lease of a claim has ended."""
    return line._replace(
        places=tuple(place._replace(until=OVER) if place.id == id else place for place in line.places)
    )


SERVER = Server()
