"""The arguments that people give to the locks of either colour, judged."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from interlock.core.claims import UNSET, USING, ClaimView, LockSpec, Unset, checked_timeout, said
from interlock.core.errors import InvalidArgument
from interlock.locks.session import AcquireOptions, name_of

_DEFAULTS = AcquireOptions()


def options_of(
    timeout: float | None, renew: bool, on_lost: Callable[[Any], object] | None, at_least: float
) -> AcquireOptions:
    """Check the arguments that say how to acquire; `at_least` was checked with the ttl."""
    if timeout is None and renew is True and on_lost is None and not at_least:
        return _DEFAULTS
    if on_lost is not None and not callable(on_lost):
        raise InvalidArgument(f"on_lost is a function of one argument, the grant, not {said(on_lost)}")
    if not isinstance(renew, bool):
        raise InvalidArgument(f"renew is True or False, not {said(renew)}")
    return AcquireOptions(checked_timeout(True, timeout), renew, on_lost, at_least)


def wait_limit(options: AcquireOptions, blocking: bool, timeout: float | None | Unset) -> float | None:
    """Return how many seconds an acquire may wait: 0 for one try, None for no limit."""
    if blocking is True and timeout is UNSET:
        return options.timeout
    if isinstance(timeout, Unset):
        checked_timeout(blocking, None)
        return options.timeout if blocking else 0.0
    return checked_timeout(blocking, timeout)


OnBusy: TypeAlias = Literal["wait", "raise", "skip"]
"""What a guarded function does while somebody else holds its lock."""


def guard_timeout(on_busy: object, timeout: float | None) -> float | None:
    """Return how long a guarded function waits at most: one that does not wait tries once, unless it is told."""
    if on_busy not in ("wait", "raise", "skip"):
        raise InvalidArgument(f"on_busy is 'wait', 'raise' or 'skip', not {said(on_busy)}")
    return 0 if timeout is None and on_busy != "wait" else timeout


class Part(Protocol):
    """What `in_global_order` needs of a lock."""

    _spec: LockSpec
    _session: Any


A = TypeVar("A", bound=Part)


def in_global_order(session: object, parts: Sequence[A]) -> list[A]:
    """Return `parts` in the one order in which everybody takes several locks.

    Raises:
        InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
    """
    if not parts:
        raise InvalidArgument("all() needs at least one name")
    if any(part._session is not session for part in parts):
        raise InvalidArgument("all() takes locks of its own connection only: there is one order per store")
    keys = [part._spec.key for part in parts]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidArgument(
                f"all() got the name {name_of(key)!r} twice: it would wait for itself; give it once"
            )
    return sorted(parts, key=lambda part: part._spec.key)


def is_used(views: Sequence[ClaimView]) -> bool:
    """Tell whether anybody in the line holds the lock."""
    return any(view.state == USING for view in views)
