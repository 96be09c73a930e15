"""Optimistic transactions: watch, compute, and commit only if nothing has changed.

Otherwise they try again.  They need no lock and block no caller; under constant changes a lock does less work.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from interlock.core.errors import UnknownOutcome
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
    "UnknownOutcome",
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
    """Run each call of a function, sync or async, as a transaction, passed as `tx`.

    Args:
        where: the argument of `transact`, or a function that returns it, called each time.
        keys, retries, timeout, backoff: like those of `transact`.

    Returns:
        The decorator; the decorated function is called without `tx`.

    Raises:
        InvalidArgument: an argument is out of range.
    """
    Tries(retries, timeout, backoff, 0.0)  # checks the arguments

    def decorate(function: Callable[Concatenate[Any, P], T]) -> Callable[P, T]:
        run: Any = atransact if kind_of(checked_function(function, True)) == "coroutine function" else transact

        @wraps(function)
        def transaction(*args: P.args, **kwargs: P.kwargs) -> T:
            here = where() if callable(where) else where
            limits: dict[str, object] = {"retries": retries, "timeout": timeout, "backoff": backoff}
            return cast(T, run(here, lambda tx: function(tx, *args, **kwargs), *keys, **limits))

        return transaction

    return decorate
