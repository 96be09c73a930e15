"""`transact` and `atransact`: run a function until what it read is what it commits on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import isawaitable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from interlock.core.errors import InvalidArgument
from interlock.core.functions import Kind, kind_of, see_it_finished, shown
from interlock.optimistic.backend import AsyncBackend, Backend, answer_of
from interlock.optimistic.errors import TryAgain
from interlock.optimistic.tries import BACKOFF, RETRIES, Tries, checked_limits

P = ParamSpec("P")
T = TypeVar("T")


def transact(
    where: Any,
    function: Callable[[Any], T],
    *keys: Any,
    retries: int | None = RETRIES,
    timeout: float | None = None,
    backoff: float = BACKOFF,
) -> T:
    """Run `function(tx)`, and commit what it queued only if nothing that it read has changed; else run it again.

    Args:
        where: a client of redis-py or valkey-py, an Engine or a sessionmaker of SQLAlchemy (`tx` is then a session),
            or a `Backend`.
        function: reads by `tx`, which watches what is read, and writes by `tx`, which queues; it may be run several
            times, so it should do nothing else that matters. An exception in it commits nothing and is passed on.
        keys: what to watch from the beginning, beside what the function reads.
        retries: how often to run it again at most; None for any number.
        timeout: seconds after which it is not run again; None for any time.
        backoff: seconds that the first pause between two runs lasts at most; the bound doubles with each.

    Returns:
        What the function returned in the run that was committed; a queued command stands for its reply.

    Raises:
        Conflict: what it read was changed each time; nothing was done.
        UnknownOutcome: the answer to the commit did not come; it is not tried again.
        CommandRefused: the transaction was done, but the server refused some of its commands.
        StoreError: the store can't be reached, or refused; nothing was done.
        InvalidArgument: an argument is out of its range, or a command or its keys can't be in a transaction.
    """
    limits = checked_limits(retries, timeout, backoff)
    kind = kind_of(function)
    if kind == "coroutine function":
        raise InvalidArgument(f"{function!r} is a coroutine function: give it to atransact()")
    _refuse_generators(function, kind)
    backend = _backend(where)
    tries = Tries(limits, time.monotonic())
    while True:
        failure = None
        try:
            with backend.begin(tries) as attempt:
                if keys:
                    attempt.watch(keys)
                value = function(attempt.transaction)
                see_it_finished(value, function, ": give it to atransact(), or let the function do the work itself")
                if attempt.commit():
                    return cast(T, answer_of(value))
        except TryAgain as error:
            failure = error
        time.sleep(tries.pause_before_next(attempt.keys, failure, time.monotonic()))


async def atransact(
    where: Any,
    function: Callable[[Any], Awaitable[T] | T],
    *keys: Any,
    retries: int | None = RETRIES,
    timeout: float | None = None,
    backoff: float = BACKOFF,
) -> T:
    """Run a transaction again and again until it is committed, on asyncio.

    A task that is cancelled leaves nothing watched and commits nothing, unless its commit was already on its way:
    then that is done as a whole or not at all.

    Args:
        where: a client of redis.asyncio or valkey.asyncio, an AsyncEngine or an async_sessionmaker, or an
            `AsyncBackend`.
        function: a coroutine function, or a function that only queues.
        keys, retries, timeout, backoff: as for `transact`.

    Returns:
        What the function returned, as `transact`.

    Raises:
        Conflict, UnknownOutcome, CommandRefused, StoreError, InvalidArgument: as `transact`.
    """
    limits = checked_limits(retries, timeout, backoff)
    _refuse_generators(function, kind_of(function))
    backend = _async_backend(where)
    tries = Tries(limits, time.monotonic())
    while True:
        failure = None
        try:
            async with backend.begin(tries) as attempt:
                if keys:
                    await attempt.watch(keys)
                value = function(attempt.transaction)
                if isawaitable(value):
                    value = await value
                see_it_finished(value, function, ": let the function do the work itself")
                if await attempt.commit():
                    return cast(T, answer_of(value))
        except TryAgain as error:
            failure = error
        await asyncio.sleep(tries.pause_before_next(attempt.keys, failure, time.monotonic()))


def transactional(
    where: Any,
    *keys: Any,
    retries: int | None = RETRIES,
    timeout: float | None = None,
    backoff: float = BACKOFF,
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]:
    """Make a transaction of each call of a function, whose first argument is then `tx`; also of a coroutine function.

    Args:
        where: as for `transact`, or a function that returns it, asked at each call.
        keys, retries, timeout, backoff: as for `transact`.

    Returns:
        The decorator; the decorated function is called without `tx`.

    Raises:
        InvalidArgument: an argument is out of its range.
    """
    checked_limits(retries, timeout, backoff)

    def decorate(function: Callable[Concatenate[Any, P], T]) -> Callable[P, T]:
        kind = kind_of(function)
        _refuse_generators(function, kind)
        run: Any = atransact if kind == "coroutine function" else transact

        @wraps(function)
        def transaction(*args: P.args, **kwargs: P.kwargs) -> T:
            here = where() if callable(where) else where
            limits: dict[str, Any] = {"retries": retries, "timeout": timeout, "backoff": backoff}
            return cast(T, run(here, lambda tx: function(tx, *args, **kwargs), *keys, **limits))

        return transaction

    return decorate


def _refuse_generators(function: object, kind: Kind) -> None:
    if "generator" in kind:
        raise InvalidArgument(f"{shown(function)} is a {kind}: what it does when it is read is in no transaction")


def _of_sqlalchemy(where: Any) -> bool:
    # Asked first: engines have a `begin` too.
    return any(base.__module__.partition(".")[0] == "sqlalchemy" for base in type(where).__mro__)


def _backend(where: Any) -> Backend:
    if _of_sqlalchemy(where):
        from interlock.optimistic.sqlalchemy import SessionBackend

        return SessionBackend(where)
    if hasattr(where, "begin"):
        return cast(Backend, where)
    # Loaded here, so that other backends need no client library.
    from interlock.optimistic.redis.threads import RedisBackend

    return RedisBackend(where)


def _async_backend(where: Any) -> AsyncBackend:
    if _of_sqlalchemy(where):
        from interlock.optimistic.sqlalchemy import AsyncSessionBackend

        return AsyncSessionBackend(where)
    if hasattr(where, "begin"):
        return cast(AsyncBackend, where)
    from interlock.optimistic.redis.tasks import AsyncRedisBackend

    return AsyncRedisBackend(where)
