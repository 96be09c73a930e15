"""Optimistic transactions: watch, compute, commit only if nothing has changed, else do it again.

They need no lock and make no caller wait; where many change the same thing all the time, a lock does less work.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from interlock.core.functions import kind_of
from interlock.optimistic._async.running import AsyncAttempt, AsyncBackend, atransact
from interlock.optimistic._sync.running import Attempt, Backend, transact
from interlock.optimistic.tries import (
    BACKOFF,
    RETRIES,
    CommandRefused,
    Conflict,
    Queued,
    Tries,
    TryAgain,
    checked_function,
)

__all__ = [
    "AsyncAttempt",
    "AsyncBackend",
    "Attempt",
    "Backend",
    "CommandRefused",
    "Conflict",
    "Queued",
    "TryAgain",
    "atransact",
    "transact",
    "transactional",
]


P = ParamSpec("P")
T = TypeVar("T")


def transactional(
    where: object,
    *keys: object,
    retries: int | None = RETRIES,
    timeout: float | None = None,
    backoff: float = BACKOFF,
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]:
    """Make a transaction of each call of a function, whose first argument is then `tx`; also of a coroutine function.

    Args:
        where: what `transact` takes, or a function that returns it, asked at each call.
        keys, retries, timeout, backoff: the same as those of `transact`.

    Returns:
        The decorator; the decorated function is called without `tx`.

    Raises:
        InvalidArgument: an argument is out of its range.
    """
    Tries(retries, timeout, backoff, 0.0)  # which judges them

    def decorate(function: Callable[Concatenate[Any, P], T]) -> Callable[P, T]:
        run: Any = atransact if kind_of(checked_function(function, True)) == "coroutine function" else transact

        @wraps(function)
        def transaction(*args: P.args, **kwargs: P.kwargs) -> T:
            here = where() if callable(where) else where
            limits: dict[str, Any] = {"retries": retries, "timeout": timeout, "backoff": backoff}
            return cast(T, run(here, lambda tx: function(tx, *args, **kwargs), *keys, **limits))

        return transaction

    return decorate
