"""One caller of the file store: the production protocol `acquire`, a model of the client around it, and its requests.

As in the client, a cancelled caller leaves with `call.claim` if that entered the line, and a holder leaves with the
claim of its grant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from interlock.core._async.protocols import AsyncWaiting
from interlock.core.claims import Claim, LockSpec
from interlock.core.queue import AcquireCall, EnterResult, Held
from model_checker.caller import Cancelled
from model_checker.runtime import AsyncWaiter, Runtime, effect

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


class Role(NamedTuple):
    """The request of a caller at each call.

    `wait` is False for one try; `times_out` is True if its time-out may pass at any moment.
    """

    units: int = 1
    capacity: int = 1
    wait: bool = True
    times_out: bool = False


class Named(Runtime):
    """The runtime of one call, whose ids follow from the first one."""

    __slots__ = ("_last",)

    def __init__(self, first: str) -> None:
        self._last = first

    async def ask(self, request: object) -> Any:
        """Suspend with a request."""
        return await effect(request)

    def fresh_id(self) -> str:
        """Return an id that was not used before in this call."""
        self._last += "'"
        return self._last


class Line:
    """The store as a queue whose steps the world performs."""

    __slots__ = ()

    async def enter(self, claim: Claim, waiter: Any, may_queue: bool, already_queued: bool) -> EnterResult:
        """As `AsyncQueue.enter`."""
        result: EnterResult = await effect(Enter(claim, waiter is not None, may_queue, already_queued))
        return result

    async def leave(self, claim: Claim) -> Any:
        """As `AsyncQueue.leave`."""
        return await effect(Leave(claim))

    def subscribe(self) -> AsyncWaiter:
        """Return a waiter: its caller has a pipe from its next step on."""
        return AsyncWaiter()


def _no_clock() -> float:
    return STARTED


async def client(acquire: Callable[..., Any], role: Role) -> None:
    """Repeatedly acquire, hold and leave.

    Args:
        acquire: the production protocol, or a mutant of it.
        role: the request.
    """
    queue: Any = Line()
    spec = LockSpec("name", role.units, role.capacity, TTL)
    while True:
        id = await effect(Begin())
        deadline = TIME_OUT if role.times_out else None
        attempt: AcquireCall[AsyncWaiting] = AcquireCall(Claim(id, spec), _no_clock, STARTED, deadline, role.wait)
        held = None
        try:
            try:
                held = await acquire(Named(id), queue, attempt)
            finally:
                # What it knew of its claim ends with it, else states that differ in it alone would be several.
                for name in (
                    "moment",
                    "sent",
                    "in_line",
                    "uncertain",
                    "granted",
                    "unanswered",
                    "unavailable_since",
                    "left_behind",
                ):
                    setattr(attempt, name, None)
            if held is not None:
                await effect(Hold(held))
                await queue.leave(held.claim)
        except Cancelled:
            if attempt.entered or held is not None:
                await queue.leave(attempt.claim)
