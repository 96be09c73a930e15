"""Reasons of losses, and messages of time-outs and dropped grants."""

import warnings
from collections.abc import Sequence

from interlock.core.claims import USING, Claim, ClaimView, LockSpec, name_of
from interlock.core.errors import Busy, LockTimeout, StoreError
from interlock.core.queue import waiters_ahead
from interlock.runtime import log

EXPIRED_OR_EVICTED = "its claim expired or was evicted"
LEASE_ENDED = "its lease expired before it could be renewed"
CONNECTION_CLOSED = "its connection was closed, or its event loop ended, and the claim ended with the connection"
AT_MOST = "it was held for the full at_most"
GONE_FROM_LINE = "its claim expired or was evicted; a new claim replaces it"


def time_is_over(
    name: str, seconds: float | None, holders: Sequence[ClaimView] | None = None, mine: bool = False
) -> LockTimeout:
    """Return the error for a lock that could not be acquired in time.

    Args:
        name: the lock's name.
        seconds: the time limit.
        holders: the claims of its holders; None if the store could not be asked.
        mine: True if one of them is the caller's.
    """
    who = "Another caller holds it."
    advice = "Find the holder with `interlock show`."
    if seconds:
        advice = "Wait longer (timeout=), or find the holder with `interlock show`."
    if holders:
        who = _held_by(holders)
        advice = "Wait longer (timeout=)." if seconds else "Wait for it (timeout=), or retry later."
    elif holders is not None:
        who = (
            "It has no holder right now: it is being handed over, earlier waiters are ahead, or the server restarted "
            "and is in its grace period."
        )
        advice = "Run `interlock doctor`, or `interlock ls` to see waiters."
    if mine:
        who = "The caller itself holds it."
        advice = "Release it first."
        if all(each.capacity == 1 for each in holders or ()):
            advice = "Release it first, or use rlock(), which its holder can acquire again."
    return LockTimeout(
        f"Could not acquire lock {name!r} within {seconds or 0:g} s. {who} {advice}",
        name=name,
        timeout=seconds,
        holders=holders or (),
    )


def too_many_wait(spec: LockSpec, seconds: float | None, line: Sequence[ClaimView], most: int | None) -> Busy:
    """Return the error for a caller that found too many waiters.

    Args:
        spec: the lock.
        seconds: the time limit.
        line: the claims in order.
        most: the limit of the caller.
    """
    name = name_of(spec.key)
    holders = [view for view in line if view.state == USING]
    waiters = len(waiters_ahead(line))
    others = "1 other is" if waiters == 1 else f"{waiters} others are"
    who = _held_by(holders) if holders else "The lock is being handed over."
    return Busy(
        f"Did not wait for lock {name!r}: {others} already waiting (max_waiters={most}). {who} "
        "Retry later, or raise max_waiters.",
        name=name,
        timeout=seconds,
        holders=holders,
        waiters=waiters,
    )


def _held_by(holders: Sequence[ClaimView]) -> str:
    if len(holders) == 1:
        return f"{_who(holders[0])} holds it."
    first, second = (_who(each) for each in holders[:2])
    if len(holders) == 2:
        return f"{first} and {second} hold it."
    return f"{first}, {second} and {len(holders) - 2} more hold it."


def _who(view: ClaimView) -> str:
    label = f" {view.label!r}" if view.label else ""
    instance = f" ({view.instance})" if view.instance else ""
    return f"{view.thread}{label} of process {view.pid}{instance} on {view.host}"


def closed_meanwhile(spec: LockSpec) -> StoreError:
    """Return the error for an acquire whose connection was closed."""
    return StoreError(f"The connection was closed while acquiring {name_of(spec.key)!r}. Call connect() again.")


def warn_of_dropped(claim: Claim) -> None:
    """Warn of a held claim whose grant was collected; tracemalloc shows its origin."""
    name = name_of(claim.spec.key)
    message = (
        f"Lock {name!r} was never released: its grant and lock object were garbage-collected while held. "
        "Its lease will expire. Use `with`, or keep the grant and call release()."
    )
    log.warn("%s", message)  # most programs show no ResourceWarning
    warnings.warn(message, ResourceWarning, stacklevel=3, source=claim)
