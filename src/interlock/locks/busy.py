"""What the error of a lock that was not obtained in time tells: who holds it."""

from collections.abc import Sequence
from time import monotonic

from interlock.core.claims import USING, ClaimView
from interlock.core.effects import Op
from interlock.core.errors import LockError, LockTimeout
from interlock.core.oldstore import Common

FRESH = 1.0  # seconds; however many give up at once, the line is looked at once
MOST_KEYS = 64


class LastHolders:
    """The holders of a lock when it was last looked at; kept for a moment."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, tuple[ClaimView, ...]]] = {}

    def of(self, store: Common, key: str) -> Op[Sequence[ClaimView]]:
        """Return who holds the lock `key`, as far as it can be found out."""
        moment, holders = self._seen.get(key, (-FRESH, ()))
        if monotonic() - moment < FRESH:
            return holders
        try:
            views = yield from store.look(key)
        except LockError:
            return ()
        if len(self._seen) >= MOST_KEYS:
            self._seen.clear()
        holders = tuple(view for view in views if view.state == USING)
        self._seen[key] = monotonic(), holders
        return holders


def time_is_over(
    name: str, seconds: float | None, holders: Sequence[ClaimView] = (), yourself: bool = False
) -> LockTimeout:
    """Return the error for a lock that was not obtained in time.

    Args:
        name: of the lock.
        seconds: that were allowed.
        holders: who holds it, as far as it is known.
        yourself: True if the caller is one of them.
    """
    who, advice = "somebody", "wait longer (timeout=), or see who with `interlock show`"
    if holders:
        who = " and ".join(_who(each) for each in holders[:2])
        who += f" and {len(holders) - 2} more" if len(holders) > 2 else ""
        advice = "wait longer (timeout=)"
    if yourself:
        who, advice = "the caller itself", "release it first, or use rlock(), which its holder may acquire again"
    return LockTimeout(
        f"the lock {name!r} was not obtained within {seconds or 0:g} s: {who} holds it; {advice}",
        name=name,
        timeout=seconds,
        holders=holders,
    )


def _who(view: ClaimView) -> str:
    label = f" {view.label!r}" if view.label else ""
    return f"{view.thread}{label} of process {view.pid} on {view.host}"
