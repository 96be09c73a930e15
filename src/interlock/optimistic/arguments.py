"""Arguments of transactions: what is allowed, and what is said if it is not."""

from typing import Any

from interlock.core.claims import MAX_TTL, checked_timeout, said
from interlock.core.errors import InvalidArgument
from interlock.core.functions import kind_of, shown
from interlock.optimistic.tries import Limits

UNFINISHED = {
    False: ": give it to atransact(), or let the function do the work itself",
    True: ": let the function do the work itself",
}
"""What to say of a function that returns work still to be done, to threads and to tasks."""


def checked_function(function: Any, tasks: bool) -> Any:
    """Return `function` if its work is done when it is over, else raise InvalidArgument.

    Args:
        function: what the caller gave.
        tasks: True if it is called in an asyncio task, and awaited.
    """
    kind = kind_of(function)
    if kind == "coroutine function" and not tasks:
        raise InvalidArgument(f"{function!r} is a coroutine function: give it to atransact()")
    if "generator" in kind:
        raise InvalidArgument(f"{shown(function)} is a {kind}: what it does when it is read is in no transaction")
    return function


def is_of_sqlalchemy(where: object) -> bool:
    """Tell whether it is an engine, a session or what makes them."""
    return any(base.__module__.partition(".")[0] == "sqlalchemy" for base in type(where).__mro__)


def checked_limits(retries: object, timeout: object, backoff: object) -> Limits:
    """Check the arguments of `transact`.

    Raises:
        InvalidArgument: one is out of its range; the message says what is allowed.
    """
    if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 0):
        raise InvalidArgument(f"retries is a whole number from 0, or None for any number, not {said(retries)}")
    if isinstance(backoff, bool) or not isinstance(backoff, (int, float)) or not 0 <= backoff <= MAX_TTL:
        raise InvalidArgument(f"backoff is a number of seconds from 0 to {MAX_TTL:g}, not {said(backoff)}")
    return Limits(retries, checked_timeout(True, timeout), float(backoff))
