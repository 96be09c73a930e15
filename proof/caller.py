"""A caller of the lock: what the client, its watchdog and `Grant.release` do around `core._async.acquire`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import LockError, UnknownOutcome
from interlock.core.queue import AcquireCall
from proof.runtime import Runtime, effect, no_clock

MOMENT = 1000.0
"""What the clock shows whenever somebody asks; the world knows which moment is meant."""
TIME_IS_OVER = 5.0
"""The deadline of a call."""


class Cancelled(BaseException):
    """The call is broken off: a cancellation, a KeyboardInterrupt."""


class Acquiring(NamedTuple):
    """From here on the call can be broken off."""


class Withdrawing(NamedTuple):
    """The call was broken off; what follows is finished whatever comes."""


class Enter(NamedTuple):
    """The critical section begins."""

    fence: int


class Work(NamedTuple):
    """In the critical section; answered by "leave" or "renew"."""


class Renewing(NamedTuple):
    """The watchdog looks at the clock before it renews."""


class Answered(NamedTuple):
    """The watchdog has an answer: extended (True), lost (False), none (None)."""

    extended: bool | None


class Leave(NamedTuple):
    """The critical section ends."""


class Finished(NamedTuple):
    """The call is over and nothing of it may be left in the store."""


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
    """Come again and again.

    Args:
        acquire: of `core._async.acquire`, as it is or changed.
        queue: the store.
        spec: what is asked for.
        wait: False for one try.
        timeout: whether the call has a deadline.
        attempts: how often; None for ever.
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
    """Take the claim of a call that was broken off out of the line."""
    try:
        await queue.leave(claim)
    except LockError:
        pass  # its lease will end


async def hold(queue: Any, held: Any) -> None:
    """Be in the critical section, renew, and give the lock back."""
    claim = held.claim
    await effect(Enter(held.fence))
    held = None
    while True:
        choice = await effect(Work())
        if choice != "renew":
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
