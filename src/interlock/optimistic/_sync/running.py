# Generated from _async/running.py by tools/unasync.py; change that one.
"""Run a function until it commits on the data that it read."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from interlock.core.functions import refuse_awaitable
from interlock.optimistic.tries import (
    AWAITABLE_ADVICE,
    BACKOFF,
    RETRIES,
    Queued,
    Tries,
    TryAgain,
    checked_function,
)
from interlock.runtime import _threads as rt
from interlock.runtime import clock


class Attempt(Protocol):
    """A try; a context manager, whose end forgets everything uncommitted.

    It suppresses an exception that reports changed data: then another try follows.
    """

    @property
    def transaction(self) -> Any:
        """The argument of the caller's function."""

    @property
    def keys(self) -> Sequence[Any]:
        """The watched keys, for messages."""

    def watch(self, keys: Sequence[object]) -> None:
        """Watch keys: a change of any of them from now on makes `commit` return False."""

    def commit(self) -> bool:
        """Perform all queued writes in one step, unless a watched key has changed.

        Returns:
            True if the writes were done; False if nothing was done.

        Raises:
            UnknownOutcome: no reply came.
            TryAgain: nothing was done for another, temporary reason.
        """

    def __enter__(self) -> "Attempt":
        """Begin the try."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Forget everything uncommitted."""


class Backend(Protocol):
    """A store of the caller for `transact`."""

    def begin(self, tries: Tries) -> Attempt:
        """Return the attempt for the next try.

        Args:
            tries: `tries.number` is the number of the try, `tries.io_timeout(now)` the time for a reply.
        """


T = TypeVar("T")


def transact(
    where: object,
    function: Callable[[Any], Awaitable[T] | T],
    *keys: object,
    retries: int | None = RETRIES,
    timeout: float | None = None,
    backoff: float = BACKOFF,
) -> T:
    """Run `function(tx)`, and commit only if nothing that it read has changed; else retry.

    A cancelled transaction leaves nothing watched and commits nothing, unless its commit was already on
    sent: then it is done completely or not at all.

    Args:
        where: a client of redis-py or valkey-py, an Engine or a sessionmaker of SQLAlchemy (`tx` is then a session),
            or a `Backend`; async ones for tasks, sync ones for threads.
        function: reads and writes by `tx`, which watches reads and queues writes; it may run several times, so it
            should have no other effects. Its exceptions are passed on, and nothing is committed.
        keys: keys to watch from the beginning, in addition to those that the function reads.
        retries: maximum number of retries; None for no limit.
        timeout: seconds after which there is no retry; None for no limit.
        backoff: maximum seconds of the first pause; the bound doubles with each pause.

    Returns:
        The function's result in the committed run; a queued command is replaced by its reply.

    Raises:
        Conflict: the read data changed in every try; nothing was done.
        UnknownOutcome: no reply to the commit came; it is not retried.
        CommandRefused: the transaction was done, but the server refused some of its commands.
        StoreError: the store is unavailable, or refused; nothing was done.
        InvalidArgument: an argument is out of range, or a command or its keys are not allowed in a transaction.
    """
    tries = Tries(retries, timeout, backoff, clock.now())
    checked_function(function, rt.IS_ASYNC)
    begin = _begin(where)
    while True:
        failure = None
        try:
            with begin(tries) as attempt:
                if keys:
                    attempt.watch(keys)
                value = function(attempt.transaction)
                refuse_awaitable(value, function, AWAITABLE_ADVICE[rt.IS_ASYNC])
                if attempt.commit():
                    return cast(T, value.reply if isinstance(value, Queued) else value)
        except TryAgain as error:
            failure = error
        rt.sleep(tries.pause_before_next(attempt.keys, failure, clock.now()))


def _begin(where: object) -> Callable[[Tries], Attempt]:
    """Return the function that begins a try; backends are imported here."""
    if any(base.__module__.partition(".")[0] == "sqlalchemy" for base in type(where).__mro__):
        from interlock.optimistic._sync.sqlalchemy import SessionAttempt
        from interlock.optimistic.sqlalchemy import maker_of

        make = maker_of(where, rt.IS_ASYNC)
        return lambda tries: SessionAttempt(make())
    if hasattr(where, "begin"):  # asked later, because engines have it too
        return cast(Backend, where).begin
    from interlock.optimistic._sync.redis import RedisAttempt
    from interlock.optimistic.redis import checked_library

    return partial(RedisAttempt, checked_library(where, rt.IS_ASYNC), where)
