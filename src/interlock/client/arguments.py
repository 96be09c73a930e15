"""Checks of the arguments of locks and of `acquire`."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, ParamSpec, TypeAlias

from interlock.core.claims import ClaimView, Unset, checked_timeout, shown_value
from interlock.core.errors import InvalidArgument
from interlock.core.line import LARGEST_SLOTS

P = ParamSpec("P")
TRY_LIMIT = 1.0  # seconds that one try may take while the store itself is busy
ONE_OF = " one of "
LONGEST_ITEMS = 80  # characters of a label
OnBusy: TypeAlias = Literal["wait", "raise", "skip"]
"""The reaction of a guarded function while another caller holds its lock."""


class AcquireOptions(NamedTuple):
    """How a lock object acquires, and how it holds.

    Attributes:
        timeout: default maximum wait in seconds; None for no limit.
        renew: True to renew the lease.
        on_lost: called with the grant when the lock is lost.
        at_least: minimum hold time in seconds.
        at_most: maximum hold time in seconds despite renewals; infinite for no limit.
        on_wanted: called with the grant when another claim begins to wait.
        items: the items of the slots, in order.
        max_waiters: do not wait if this many others are already waiting; None for no limit.
        check_line: called with the claims of the name each time that a claim begins to wait; raises to end the
            wait.
    """

    timeout: float | None = None
    renew: bool = True
    on_lost: Callable[[Any], object] | None = None
    at_least: float = 0.0
    at_most: float = math.inf
    on_wanted: Callable[[Any], object] | None = None
    items: tuple[str, ...] = ()
    max_waiters: int | None = None
    check_line: Callable[[Sequence[ClaimView]], None] | None = None


DEFAULT_OPTIONS = AcquireOptions()


def seconds_of(on_busy: object, timeout: float | None, max_waiters: int | None = None) -> float | None:
    """Return the maximum wait in seconds; 0 unless `on_busy` is "wait", or the number of waiters is limited.

    Raises:
        InvalidArgument: `on_busy` is not one of the three.
    """
    if on_busy not in ("wait", "raise", "skip"):
        raise InvalidArgument(f"on_busy must be 'wait', 'raise' or 'skip', not {shown_value(on_busy)}.")
    return 0 if timeout is None and max_waiters is None and on_busy != "wait" else timeout


def checked_items(items: Sequence[str]) -> tuple[str, ...]:
    """Return the sorted items of the slots, else raise InvalidArgument."""
    listed = () if isinstance(items, str) else tuple(items)
    if not 1 <= len(set(listed)) == len(listed) <= LARGEST_SLOTS or not all(isinstance(each, str) for each in listed):
        raise InvalidArgument(
            f"items must be a list of 1 to {LARGEST_SLOTS} different texts, not {shown_value(items)}."
        )
    return tuple(sorted(listed))


def label_of_items(items: tuple[str, ...], label: str | None) -> str:
    """Return the label of a claim to one of several items, which contains the items."""
    text = ", ".join(items)
    if len(text) > LONGEST_ITEMS:
        from hashlib import sha256  # loads OpenSSL

        digest = sha256("\0".join(items).encode()).hexdigest()[:16]
        text = f"{text[:LONGEST_ITEMS]}… ({len(items)}, {digest})"
    return f"{label or ''}{ONE_OF}{text}".lstrip()


def refuse_other_items(label: str, views: Sequence[ClaimView], fence: int | None) -> None:
    """Raise InvalidArgument if another claim (before `fence`, if given) has other items."""
    mine = label.rpartition(ONE_OF.lstrip())[2]
    for view in views:
        _, marked, theirs = view.label.rpartition(ONE_OF.lstrip())
        if marked and theirs != mine and (fence is None or (view.fence or fence) < fence):
            raise InvalidArgument(
                f"The items of {view.name!r} are [{theirs}] in other claims and [{mine}] here. Use one list for all."
            )


def wait_limit(options: AcquireOptions, blocking: bool, timeout: float | None | Unset) -> float | None:
    """Return the maximum wait of an acquire: 0 for one try, None for no limit."""
    if isinstance(timeout, Unset):
        return options.timeout if blocking is True or checked_timeout(blocking, None) is None else 0.0
    return checked_timeout(blocking, timeout)
