# Generated from _async/running.py by tools/unasync.py; change that one.
"""Run a function until what it read is what it commits on."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from interlock.core.functions import refuse_awaitable
from interlock.optimistic.tries import (
    BACKOFF,
    RETRIES,
    UNFINISHED,
    Queued,
    Tries,
    TryAgain,
    checked_function,
)
from interlock.runtime import _threads as rt
from interlock.runtime import clock


class Attempt(Protocol):
    """One try; a context manager, whose end forgets everything that was not committed.

    It swallows an exception that says that what was read has changed: then there is another try.
    """

    @property
    def transaction(self) -> Any:
        """What the caller's function is given."""

    @property
    def keys(self) -> Sequence[Any]:
        """What is watched, for messages."""

    def watch(self, keys: Sequence[object]) -> None:
        """Remember these as they are now: a change of any of them from now on makes `commit` return False."""

    def commit(self) -> bool:
        """Do all that was queued, in one step, unless something that is watched has changed.

        Returns:
            True if it was done; False if nothing was.

        Raises:
            UnknownOutcome: no answer came.
            TryAgain: nothing was done for another reason, which may pass.
        """

    def __enter__(self) -> "Attempt":
        """Begin the try."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Forget what was not committed."""


class Backend(Protocol):
    """A store of the caller's own that `transact` can ask."""

    def begin(self, tries: Tries) -> Attempt:
        """Return the attempt for the next try.

        Args:
            tries: `tries.number` says which try it is, `tries.io_timeout(now)` how long an answer may take.
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
    """Run `function(tx)`, and commit what it queued only if nothing that it read has changed; else run it again.

    A cancelled transaction leaves nothing watched and commits nothing, unless its commit was already on
    its way: then that is done as a whole or not at all.

    Args:
        where: a client of redis-py or valkey-py, an Engine or a sessionmaker of SQLAlchemy (`tx` is then a session),
            or a `Backend`; for tasks one of their libraries, for threads one of theirs.
        function: reads by `tx`, which watches what is read, and writes by `tx`, which queues; it may be run several
            times, so it should do nothing else that matters. An exception in it commits nothing and is passed on.
        keys: what to watch from the beginning, beside what the function reads.
        retries: how often to run it again at most; None for any number.
        timeout: seconds after which it is not run again; None for any time.
        backoff: seconds that the first pause between two runs lasts at most; the bound doubles with each.

    Returns:
        What the function returned in the run that was committed; a queued command is replaced by its reply.

    Raises:
        Conflict: what it read was changed each time; nothing was done.
        UnknownOutcome: the answer to the commit did not come; it is not tried again.
        CommandRefused: the transaction was done, but the server refused some of its commands.
        StoreError: the store can't be reached, or refused; nothing was done.
        InvalidArgument: an argument is out of its range, or a command or its keys can't be in a transaction.
    """
    tries = Tries(retries, timeout, backoff, clock.now())
    checked_function(function, rt.TASKS)
    begin = _begin(where)
    while True:
        failure = None
        try:
            with begin(tries) as attempt:
                if keys:
                    attempt.watch(keys)
                value = function(attempt.transaction)
                refuse_awaitable(value, function, UNFINISHED[rt.TASKS])
                if attempt.commit():
                    return cast(T, value.reply if isinstance(value, Queued) else value)
        except TryAgain as error:
            failure = error
        rt.sleep(tries.pause_before_next(attempt.keys, failure, clock.now()))


def _begin(where: object) -> Callable[[Tries], Attempt]:
    """Return what begins a try; what it needs is loaded here, so that other stores need no client library."""
    if any(base.__module__.partition(".")[0] == "sqlalchemy" for base in type(where).__mro__):
        from interlock.optimistic._sync.sqlalchemy import SessionAttempt
        from interlock.optimistic.sqlalchemy import maker_of

        make = maker_of(where, rt.TASKS)
        return lambda tries: SessionAttempt(make())
    if hasattr(where, "begin"):  # asked later: engines have one too
        return cast(Backend, where).begin
    from interlock.optimistic._sync.redis import RedisAttempt
    from interlock.optimistic.redis import checked_library

    return partial(RedisAttempt, checked_library(where, rt.TASKS), where)
