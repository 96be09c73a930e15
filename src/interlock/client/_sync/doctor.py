# Generated from _async/doctor.py by tools/unasync.py; change that one.
"""The part of `doctor` that is the same on every store: does it lock?"""

from interlock.core._sync.acquire import acquire
from interlock.core.claims import SEPARATOR, Check, Claim, LockSpec
from interlock.core.errors import LockError
from interlock.core.queue import AcquireCall, Queue, Held
from interlock.runtime import _threads as rt
from interlock.runtime.clock import Clock

WAIT_LIMIT = 5.0  # seconds for each acquire


def round_trip(queue: Queue, namespace: str, now: Clock) -> list[Check]:
    """Acquire and release a lock of an unused name, and look at the line meanwhile.

    Args:
        queue: of the store to examine.
        namespace: where the name is made.
        now: the clock of its leases.

    Returns:
        The findings.
    """
    spec = LockSpec(f"{namespace}{SEPARATOR}interlock doctor {rt.fresh_id()}")
    started = now()
    try:
        first = _acquire(queue, spec, now, WAIT_LIMIT)
        if first is None:
            return [Check("round trip", "fail", f"a lock that nobody holds was not obtained within {WAIT_LIMIT:g} s")]
        try:
            seen = [view.id for view in queue.look(spec.key)]
            second = _acquire(queue, spec, now, 0.0)
        finally:
            queue.leave(first.claim)
        if second is not None:
            queue.leave(second.claim)
            return [Check("round trip", "fail", "the store let two in: do not use it")]
        third = _acquire(queue, spec, now, WAIT_LIMIT)
        if third is None:
            return [Check("round trip", "fail", "a lock that was released was not obtained again")]
        queue.leave(third.claim)
    except LockError as error:
        return [Check("round trip", "fail", f"acquire and release failed: {error}")]
    return [_line(first.claim.id, seen, (now() - started) * 1000), _fences(first.fence, third.fence)]


def _acquire(queue: Queue, spec: LockSpec, now: Clock, seconds: float) -> Held | None:
    started = now()
    claim = Claim(rt.fresh_id(), spec, "doctor")
    held: Held | None = acquire(
        rt, queue, AcquireCall(claim, now, started, started + (seconds or 1.0), seconds != 0)
    )
    return held


def _line(mine: str, seen: list[str], took: float) -> Check:
    if seen != [mine]:
        return Check("round trip", "fail", f"the claim {mine} does not show in its line: {seen}")
    return Check("round trip", "ok", f"acquire, look, refuse, release and acquire again took {took:.1f} ms")


def _fences(first: int, later: int) -> Check:
    if later > first:
        return Check("fences", "ok", f"increase: {first}, {later}")
    return Check("fences", "fail", f"do not increase: {first}, then {later}")
