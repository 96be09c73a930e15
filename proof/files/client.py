"""One caller of the file store: the production protocol `acquire`, what surrounds it, and what it asks of the world.

The surroundings are those of `threads.connection`: a caller that is broken off leaves with `attempt.claim`, if that
entered the line; a holder leaves with the claim that it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from interlock.core.acquire import AcquireCall, Held
from interlock.core.claims import Claim, LockSpec
from interlock.core.effects import Op
from interlock.core.queue import EnterResult

STARTED = 0.0
TTL = 1.0
LEASE_ENDS = STARTED + TTL
TIME_OUT = 100.0
"""Moments are names, not times: the world says of each whether it has passed."""

Acquire = Callable[[Any, AcquireCall], Op[Held | None]]


class Begin(NamedTuple):
    """Nothing is wanted; answered by a fresh id when the caller comes again."""


class Enter(NamedTuple):
    """One step `enter` of the store."""

    claim: Claim
    subscribed: bool
    wait: bool
    again: bool


class Leave(NamedTuple):
    """One step `leave` of the store."""

    claim: Claim


class Hold(NamedTuple):
    """Be in the critical section."""

    held: Held


class Cancelled(BaseException):
    """The caller is broken off: a cancelled task, a KeyboardInterrupt."""


class Role(NamedTuple):
    """What a caller asks for, each time that it comes.

    `wait`: False for one try; `times_out`: its time-out may pass at any moment.
    """

    units: int = 1
    capacity: int = 1
    wait: bool = True
    times_out: bool = False


class Line:
    """The store as a Queue whose steps the world performs."""

    __slots__ = ()

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """As `Queue.enter`."""
        result: EnterResult = yield Enter(claim, wakeup is not None, wait, again)
        return result

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        removed: bool = yield Leave(claim)
        return removed


def client(acquire: Acquire, role: Role) -> Op[None]:
    """Come again and again: acquire, hold, leave.

    Args:
        acquire: the production protocol, or a mutant of it.
        role: what to ask for.
    """
    queue = Line()
    spec = LockSpec("name", role.units, role.capacity, TTL)
    while True:
        id = yield Begin()
        deadline = TIME_OUT if role.times_out else None
        attempt = AcquireCall(Claim(id, spec), STARTED, deadline, role.wait)
        held = None
        try:
            held = yield from acquire(queue, attempt)
            if held is not None:
                yield Hold(held)
                yield from queue.leave(held.claim)
        except Cancelled:
            if attempt.entered or held is not None:
                yield from queue.leave(attempt.claim)
        del attempt, held, id, deadline
