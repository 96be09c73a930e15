"""Steps that find the guard of a line taken: they are tried again for a while."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from interlock.core.claims import Claim
from interlock.core.effects import NOW, Call, Op, Sleep
from interlock.core.errors import StoreError
from interlock.core.queue import Renewed

T = TypeVar("T")
GUARD_WAIT = 1.0  # seconds; the guard is held for microseconds, except by a process that was stopped in it
IN_A_ROW = 16  # renewals in a row before others get a turn on an event loop


def while_busy(step: Callable[..., T | None], *args: Any) -> Op[T]:
    """Do a step.

    Args:
        step: returns None while the guard is taken.
        args: for it.

    Raises:
        StoreError: the guard is taken all the time.
    """
    started, pause = (yield NOW), 0.0005
    while True:
        answer: T | None = yield Call(step, args)
        if answer is not None:
            return answer
        now = yield NOW
        if now - started >= GUARD_WAIT:
            raise _stuck()
        yield Sleep(pause)
        pause = min(0.05, pause * 1.5)


def renew_each(
    claims: Sequence[Claim], trust: Callable[[], bool], renew: Callable[[Claim], Renewed | None]
) -> Op[list[Renewed]]:
    """Renew claims, those first whose guard is free.

    Args:
        claims: of this process.
        trust: sees whether its liveness pipe is there; False if that can't be said now.
        renew: renews one; None if its guard is taken.
    """
    trusted: bool = yield Call(trust)
    answers: dict[int, Renewed | None] = dict.fromkeys(range(len(claims)))
    wait_limit = min(GUARD_WAIT, min((claim.spec.ttl for claim in claims), default=1.0) / 10)
    started, pause = (yield NOW), 0.0005
    busy = list(answers)
    while True:
        for tried, at in enumerate(busy if trusted else (), 1):
            answers[at] = yield Call(renew, (claims[at],))
            if tried % IN_A_ROW == 0:
                yield Sleep(0.0)
        busy = [at for at in busy if answers[at] is None]
        now = yield NOW
        if not busy or now - started >= wait_limit:
            # One line whose guard is stuck is no reason to let the others' leases end.
            return [_stuck() if answer is None else answer for answer in answers.values()]
        yield Sleep(pause)
        pause = min(0.05, pause * 1.5)
        trusted = trusted or (yield Call(trust))


def _stuck() -> StoreError:
    return StoreError(
        "the guard of a line, or the marker of the folder, is held by a process that was stopped in the middle of a "
        "step, or by some other program: continue it or kill it (lslocks shows which), then call again"
    )
