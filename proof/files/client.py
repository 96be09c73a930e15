"""One caller of the file store: the production protocol `acquire`, what surrounds it, and what it asks of the world.

The surroundings are those of the client: a caller that is broken off leaves with `call.claim`, if that entered the
line; a holder leaves with the claim that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from interlock.core.claims import Claim, LockSpec
from interlock.core.queue import AcquireCall, EnterResult, Granted, Held

STARTED = 0.0
TTL = 1.0
LEASE_ENDS = STARTED + TTL
TIME_OUT = 100.0
"""Moments are names, not times: the world says of each whether it has passed."""


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


class Before(NamedTuple):
    """Has a moment not come yet?"""

    moment: float


class Now(NamedTuple):
    """What time is it, before a request is sent?"""


class FreshId(NamedTuple):
    """An id that nobody has used."""


class Sleep(NamedTuple):
    """Let some time pass."""


class Subscribe(NamedTuple):
    """A pipe to wait at."""


class Wait(NamedTuple):
    """Wait at the pipe."""


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


class Asked:
    """The runtime of the protocol: the world answers."""

    __slots__ = ()

    def before(self, now: Any, moment: float) -> Generator[Any, Any, Any]:
        return (yield Before(moment))

    def time_by(self, now: Any) -> Generator[Any, Any, Any]:
        return (yield Now())

    def sleep(self, seconds: float) -> Generator[Any, Any, Any]:
        yield Sleep()

    def fresh_id(self) -> Generator[Any, Any, Any]:
        return (yield FreshId())


class Pipe:
    """What a caller waits at."""

    __slots__ = ()

    def wait(self, seconds: float) -> Generator[Any, Any, Any]:
        granted: Granted | None = yield Wait()
        return granted

    def close(self) -> None:
        """Nothing: the world sees where the caller stands."""


RUNTIME, PIPE = Asked(), Pipe()


class Line:
    """The store as a queue whose steps the world performs."""

    __slots__ = ()

    def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> Generator[Any, Any, Any]:
        """As `AsyncQueue.enter`."""
        result: EnterResult = yield Enter(claim, waiter is not None, wait, again)
        return result

    def leave(self, claim: Claim) -> Generator[Any, Any, Any]:
        """As `AsyncQueue.leave`."""
        return (yield Leave(claim))

    def subscribe(self) -> Generator[Any, Any, Any]:
        """As `AsyncQueue.subscribe`."""
        yield Subscribe()
        return PIPE


def _no_clock() -> float:
    return STARTED


def client(acquire: Callable[..., Any], role: Role) -> Generator[Any, Any, Any]:
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
        attempt = AcquireCall(Claim(id, spec), _no_clock, STARTED, deadline, role.wait)
        held = None
        try:
            held = yield from acquire(RUNTIME, queue, attempt)
            if held is not None:
                yield Hold(held)
                yield from queue.leave(held.claim)
        except Cancelled:
            if attempt.entered or held is not None:
                yield from queue.leave(attempt.claim)
        del attempt, held, id, deadline
