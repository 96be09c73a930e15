"""The part of `doctor` that is the same on every store and in both colours: does it lock?"""

from interlock.core.acquire import AcquireCall, Held, acquire
from interlock.core.claims import SEPARATOR, Check, Claim, LockSpec
from interlock.core.effects import FRESH_ID, NOW, Op
from interlock.core.errors import LockError
from interlock.core.oldstore import Common

WAIT_LIMIT = 5.0  # seconds for each acquire


def round_trip(store: Common, namespace: str) -> Op[list[Check]]:
    """Acquire and release a lock of a name that nobody uses, and look at the line meanwhile.

    Args:
        store: the store to examine.
        namespace: where the name is made.

    Returns:
        The findings.
    """
    name = yield FRESH_ID
    spec = LockSpec(f"{namespace}{SEPARATOR}interlock doctor {name}")
    started = yield NOW
    try:
        first = yield from _acquire(store, spec, WAIT_LIMIT)
        if first is None:
            return [Check("round trip", "fail", f"a lock that nobody holds was not obtained within {WAIT_LIMIT:g} s")]
        try:
            seen = [view.id for view in (yield from store.look(spec.key))]
            second = yield from _acquire(store, spec, 0.0)
        finally:
            yield from store.leave(first.claim)
        if second is not None:
            yield from store.leave(second.claim)
            return [Check("round trip", "fail", "the store let two in: do not use it")]
        third = yield from _acquire(store, spec, WAIT_LIMIT)
        if third is None:
            return [Check("round trip", "fail", "a lock that was released was not obtained again")]
        yield from store.leave(third.claim)
    except LockError as error:
        return [Check("round trip", "fail", f"acquire and release failed: {error}")]
    took = ((yield NOW) - started) * 1000
    return [_line(first.claim.id, seen, took), _fences(first.fence, third.fence)]


def _acquire(store: Common, spec: LockSpec, seconds: float) -> Op[Held | None]:
    started = yield NOW
    claim = Claim((yield FRESH_ID), spec, "doctor")
    return (yield from acquire(store, AcquireCall(claim, started, started + (seconds or 1.0), seconds != 0)))


def _line(mine: str, seen: list[str], took: float) -> Check:
    if seen != [mine]:
        return Check("round trip", "fail", f"the claim {mine} does not show in its line: {seen}")
    return Check("round trip", "ok", f"acquire, look, refuse, release and acquire again took {took:.1f} ms")


def _fences(first: int, later: int) -> Check:
    if later > first:
        return Check("fences", "ok", f"increase: {first}, {later}")
    return Check("fences", "fail", f"do not increase: {first}, then {later}")
