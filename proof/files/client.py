"""One caller of the file store: the production protocol `acquire`, a model of the client around it, and its requests.

As in the client, a cancelled caller leaves with `call.claim` if that entered the line, and a holder leaves with the
claim of its grant.
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
"""Moments are names, not times: the world decides for each whether it has passed."""


class Begin(NamedTuple):
    """The caller is idle; the answer, a fresh id, begins its next call."""


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
    """Ask whether a moment has not come yet."""

    moment: float


class Now(NamedTuple):
    """Ask for the time before a request is sent."""


class FreshId(NamedTuple):
    """Ask for an id that was never used."""


class Sleep(NamedTuple):
    """Let some time pass."""


class Subscribe(NamedTuple):
    """Ask for a pipe to wait at."""


class Wait(NamedTuple):
    """Wait at the pipe."""


class Cancelled(BaseException):
    """The caller is cancelled or interrupted."""


class Role(NamedTuple):
    """The request of a caller at each call.

    `wait` is False for one try; `times_out` is True if its time-out may pass at any moment.
    """

    units: int = 1
    capacity: int = 1
    wait: bool = True
    times_out: bool = False


class Asked:
    """The runtime of the protocol: each primitive is a request to the world."""

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
    """The pipe at which a caller waits."""

    __slots__ = ()

    def wait(self, seconds: float) -> Generator[Any, Any, Any]:
        granted: Granted | None = yield Wait()
        return granted

    def close(self) -> None:
        """Do nothing: the world knows whether the caller waits."""


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
    """Repeatedly acquire, hold and leave.

    Args:
        acquire: the production protocol, or a mutant of it.
        role: the request.
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
