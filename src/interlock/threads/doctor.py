"""The part of `doctor` that is the same on every store: does it lock?"""

import time
from collections.abc import Callable, Iterator

from interlock.claims import Check, ClaimView
from interlock.engine import fresh_id
from interlock.errors import LockError
from interlock.threads.locks import Lock


def round_trip(lock: Callable[..., Lock], claims: Callable[[str], list[ClaimView]]) -> Iterator[Check]:
    """Acquire and release a lock of a name that nobody uses, and look at the line meanwhile."""
    name = f"interlock doctor {fresh_id()}"
    started = time.perf_counter()
    try:
        with lock(name, timeout=5) as first:
            seen = [view.id for view in claims(name)]
            second = lock(name).acquire(timeout=0)
            if second is not None:
                second.release()
        with lock(name, timeout=5) as third:
            later = third.fence
    except LockError as error:
        yield Check("round trip", "fail", f"acquire and release failed: {error}")
        return
    took = (time.perf_counter() - started) * 1000
    if second is not None:
        yield Check("round trip", "fail", "the store let two in: do not use it")
    elif seen != [first.id]:
        yield Check("round trip", "fail", f"the claim {first.id} does not show in its line: {seen}")
    else:
        yield Check("round trip", "ok", f"acquire, look, refuse, release and acquire again took {took:.1f} ms")
    if later > first.fence:
        yield Check("fences", "ok", f"increase: {first.fence}, {later}")
    else:
        yield Check("fences", "fail", f"do not increase: {first.fence}, then {later}")
