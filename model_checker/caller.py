"""A model of a caller of the lock: the client, its watchdog and `Grant.release` around `core._async.acquire`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import LockError, UnknownOutcome
from interlock.core.queue import AcquireCall
from model_checker.runtime import Runtime, effect, no_clock

MOMENT = 1000.0
"""The value of every reading of the clock; the world decides which moment it stands for."""
TIME_IS_OVER = 5.0
"""The deadline of a call."""


class Cancelled(BaseException):
    """The call is cancelled or interrupted."""


class Acquiring(NamedTuple):
    """From here on the call can be cancelled."""


class Withdrawing(NamedTuple):
    """The call was cancelled; the clean-up that follows can't be cancelled."""


class Enter(NamedTuple):
    """The critical section begins."""

    fence: int


class Work(NamedTuple):
    """In the critical section; answered by "leave" or "renew"."""


class Renewing(NamedTuple):
    """The watchdog reads the clock before it renews."""


class Answered(NamedTuple):
    """The watchdog has a reply: extended (True), lost (False), or none (None)."""

    extended: bool | None


class Leave(NamedTuple):
    """The critical section ends."""


class Finished(NamedTuple):
    """The call has ended, and none of its claims may be left in the store."""


Acquire: TypeAlias = Callable[[Any, Any, Any], Coroutine[Any, Any, Any]]


async def caller(
    acquire: Acquire,
    queue: Any,
    spec: LockSpec,
    *,
    wait: bool,
    timeout: bool,
    attempts: int | None,
) -> None:
    """Acquire and release repeatedly.

    Args:
        acquire: `core._async.acquire.acquire`, or a mutant of it.
        queue: the store.
        spec: the lock.
        wait: False for one try.
        timeout: True if the call has a deadline.
        attempts: the number of calls; None for no end.
    """
    rt = Runtime()
    while attempts is None or attempts > 0:
        if attempts is not None:
            attempts -= 1
        started = await rt.time_by(no_clock)
        first = rt.fresh_id()
        deadline = TIME_IS_OVER if timeout else None
        call: Any = AcquireCall(Claim(first, spec), no_clock, started, deadline, wait)
        await rt.ask(Acquiring())
        try:
            held = await acquire(rt, queue, call)
            claim = None
        except (Cancelled, LockError):
            held = None
            claim = call.claim
        call = None
        if claim is not None:
            await effect(Withdrawing())
            await withdraw(queue, claim)
        elif held is not None:
            await hold(queue, held)
        await effect(Finished())


async def withdraw(queue: Any, claim: Claim) -> None:
    """Release the claim of a cancelled call."""
    try:
        await queue.leave(claim)
    except LockError:
        pass  # the lease will expire


async def hold(queue: Any, held: Any) -> None:
    """Be in the critical section, renew, and release the lock."""
    claim = held.claim
    await effect(Enter(held.fence))
    held = None
    while True:
        if await effect(Work()) != "renew":
            break
        await effect(Renewing())
        try:
            answers = await queue.renew([claim])
        except UnknownOutcome:
            await effect(Answered(None))
        else:
            await effect(Answered(bool(answers[0])))
            if not answers[0]:
                break
    await effect(Leave())
    await withdraw(queue, claim)
