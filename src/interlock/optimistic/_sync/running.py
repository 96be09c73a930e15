# Generated from _async/running.py by tools/unasync.py; change that one.
"""Run a function until what it read is what it commits on."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar, cast

from interlock.core.functions import see_it_finished
from interlock.optimistic._sync.backend import Backend
from interlock.optimistic.arguments import UNFINISHED, checked_function, checked_limits, is_of_sqlalchemy
from interlock.optimistic.errors import TryAgain
from interlock.optimistic.queued import Queued
from interlock.optimistic.tries import BACKOFF, RETRIES, Tries
from interlock.runtime import _threads as rt
from interlock.runtime import clock

T = TypeVar("T")


def transact(
    where: Any,
    function: Callable[[Any], Awaitable[T] | T],
    *keys: Any,
    retries: int | None = RETRIES,
    timeout: float | None = None,
    backoff: float = BACKOFF,
) -> T:
    """Run `function(tx)`, and commit what it queued only if nothing that it read has changed; else run it again.

    In asyncio, a task that is cancelled leaves nothing watched and commits nothing, unless its commit was already on
    its way: then that is done as a whole or not at all.

    Args:
        where: a client of redis-py or valkey-py, an Engine or a sessionmaker of SQLAlchemy (`tx` is then a session),
            or a `Backend`; with `transact` one of asyncio.
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
    checked_function(function, rt.TASKS)
    backend = _backend(where)
    tries = Tries(limits, clock.now())
    while True:
        failure = None
        try:
            with backend.begin(tries) as attempt:
                if keys:
                    attempt.watch(keys)
                value = function(attempt.transaction)
                see_it_finished(value, function, UNFINISHED[rt.TASKS])
                if attempt.commit():
                    return cast(T, value.reply if isinstance(value, Queued) else value)
        except TryAgain as error:
            failure = error
        rt.sleep(tries.pause_before_next(attempt.keys, failure, clock.now()))


def _backend(where: Any) -> Backend:
    if is_of_sqlalchemy(where):  # asked first: engines have a `begin` too
        from interlock.optimistic.sqlalchemy._sync.sessions import SessionBackend

        return SessionBackend(where)
    if hasattr(where, "begin"):
        return cast(Backend, where)
    # Loaded here, so that other backends need no client library.
    from interlock.optimistic.redis._sync.attempt import RedisBackend

    return RedisBackend(where)
