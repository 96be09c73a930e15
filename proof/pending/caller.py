"""A caller of the lock: what `Locks._acquire`, the watchdog and `Grant.release` do around the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from interlock.core.claims import Claim, LockSpec
from interlock.core.effects import FRESH_ID, NOW, Op
from interlock.core.errors import LockError, UnknownOutcome

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


Acquire: TypeAlias = Callable[[Any, Any], Op[Any]]


def caller(
    acquire: Acquire,
    make_attempt: Any,
    queue: Any,
    spec: LockSpec,
    *,
    wait: bool,
    timeout: bool,
    attempts: int | None,
) -> Op[None]:
    """Come again and again.

    Args:
        acquire, make_attempt: of `core.acquire`, as it is or changed.
        queue: of `core.pending`.
        spec: what is asked for.
        wait: False for one try.
        timeout: whether the call has a deadline.
        attempts: how often; None for ever.
    """
    while attempts is None or attempts > 0:
        if attempts is not None:
            attempts -= 1
        first = yield FRESH_ID
        started = yield NOW
        attempt = make_attempt(Claim(first, spec), started, TIME_IS_OVER if timeout else None, wait)
        yield Acquiring()
        try:
            held = yield from acquire(queue, attempt)
            claim = None
        except (Cancelled, LockError):
            held = None
            claim = attempt.claim
        attempt = None
        if claim is not None:
            yield Withdrawing()
            yield from withdraw(queue, claim)
        elif held is not None:
            yield from hold(queue, held)
        yield Finished()


def withdraw(queue: Any, claim: Claim) -> Op[None]:
    """Take the claim of a call that was broken off out of the line."""
    try:
        yield from queue.leave(claim)
    except LockError:
        pass  # its lease will end


def hold(queue: Any, held: Any) -> Op[None]:
    """Be in the critical section, renew, and give the lock back."""
    claim = held.claim
    yield Enter(held.fence)
    held = None
    while True:
        choice = yield Work()
        if choice != "renew":
            break
        yield Renewing()
        try:
            answers = yield from queue.renew([claim])
        except UnknownOutcome:
            yield Answered(None)
        else:
            yield Answered(answers[0])
            if not answers[0]:
                break
    yield Leave()
    yield from withdraw(queue, claim)
