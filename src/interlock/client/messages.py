"""The reasons of losses, and the messages of time-outs and dropped grants."""

import warnings
from collections.abc import Sequence

from interlock.core.claims import Claim, ClaimView, LockSpec, name_of
from interlock.core.errors import LockTimeout, StoreError
from interlock.runtime import log

GONE_THERE = "the store no longer has its claim: it expired there or was evicted"
LEASE_ENDED = "its lease ended before it was renewed"
CONNECTION_CLOSED = "its connection was closed, or its event loop ended, and the claim ended with the connection"
AT_MOST = "it was held for as long as its at_most says"
GONE_FROM_LINE = "its claim was gone, it expired or was evicted; another one lines up in its place"


def time_is_over(
    name: str, seconds: float | None, holders: Sequence[ClaimView] | None = None, mine: bool = False
) -> LockTimeout:
    """Return the error for a lock that was not obtained in time.

    Args:
        name: of the lock.
        seconds: that were allowed.
        holders: the claims that hold it; None if the store could not be asked.
        mine: True if one of them is the caller's.
    """
    who = "another caller holds it"
    advice = "find the holder with `interlock show`"
    if seconds:
        advice = f"wait longer (timeout=), or {advice}"
    if holders:
        who = " and ".join(_who(each) for each in holders[:2])
        who += (f" and {len(holders) - 2} more" if len(holders) > 2 else "") + " holds it"
        advice = "wait longer (timeout=)" if seconds else "wait for it (timeout=), or come back later"
    elif holders is not None:
        who = "it has no holder at this moment"
        advice = (
            "it is being handed over, other waiters are before the caller, or the server was restarted and grants no "
            "lock during its grace: see `interlock doctor`, and `interlock ls` for the waiters"
        )
    if mine:
        who = "the caller itself holds it"
        advice = "release it first"
        if all(each.capacity == 1 for each in holders or ()):
            advice += ", or use rlock(), which its holder may acquire again"
    return LockTimeout(
        f"the lock {name!r} was not obtained within {seconds or 0:g} s: {who}; {advice}",
        name=name,
        timeout=seconds,
        holders=holders or (),
    )


def _who(view: ClaimView) -> str:
    label = f" {view.label!r}" if view.label else ""
    return f"{view.thread}{label} of process {view.pid} on {view.host}"


def closed_meanwhile(spec: LockSpec) -> StoreError:
    """Return the error for an acquire whose connection was closed meanwhile."""
    return StoreError(f"the connection was closed while {name_of(spec.key)!r} was acquired: connect again")


def warn_of_dropped(claim: Claim) -> None:
    """Warn that the grant of a claim was collected while it was held; tracemalloc knows where a claim was made."""
    name = name_of(claim.spec.key)
    message = (
        f"the lock {name!r} was never released: its grant and its lock object were collected while "
        "it was held, so its lease is renewed no more and ends; use `with`, or keep the grant and call release()"
    )
    log.warn("%s", message)  # most programs show no ResourceWarning, and a second copy may run when the lease is over
    warnings.warn(message, ResourceWarning, stacklevel=3, source=claim)
