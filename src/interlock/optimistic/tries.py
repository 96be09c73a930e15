"""The number of tries, the pauses in between, and writes that wait for the commit."""

import math
import random
from collections.abc import Generator, Sequence
from typing import Any, NoReturn

from interlock.core.claims import checked_seconds, checked_timeout, shown_value
from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.core.functions import kind_of, shown


class Conflict(LockError):
    """Another writer changed the read data in every allowed try; nothing was done.

    Attributes:
        tries: the number of runs of the function.
        seconds: the duration of all runs.
        keys: the keys watched in the last try.
    """

    def __init__(self, message: str, tries: int, seconds: float, keys: Sequence[object]) -> None:
        super().__init__(message)
        self.tries = tries
        self.seconds = seconds
        self.keys = tuple(keys)


class TryAgain(StoreError):
    """Nothing was done, and a retry may succeed; raised by a backend."""


class CommandRefused(StoreError):
    """The transaction was committed, but the server refused some of its commands.

    Redis does not roll back: only the failed command, such as one of the wrong type for its key, has no effect.

    Attributes:
        replies: the replies to the queued commands in order; an exception for each refused command.
    """

    def __init__(self, message: str, replies: Sequence[object]) -> None:
        super().__init__(message)
        self.replies = tuple(replies)


RETRIES = 16
BACKOFF = 0.002  # seconds: maximum pause after the first conflict
LONGEST_PAUSE = 0.25  # seconds: maximum pause after any number of conflicts
SHORTEST_IO_TIMEOUT = 1.0  # seconds that the store may always take for one reply


class Tries:
    """The tries of one transaction, without a clock of its own.

    Args:
        retries: the number of allowed retries; None for no limit.
        timeout: seconds for all tries; None for no limit.
        backoff: maximum seconds of the first pause.
        started: now, in seconds of a monotonic clock.

    Attributes:
        number: the number of the try, from 1.

    Raises:
        InvalidArgument: an argument is out of range; the message gives the range.
    """

    def __init__(self, retries: int | None, timeout: float | None, backoff: float, started: float) -> None:
        if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 0):
            raise InvalidArgument(
                f"retries must be a whole number from 0, or None for no limit, not {shown_value(retries)}."
            )
        seconds = checked_timeout(True, timeout)
        self.number = 1
        self._retries = math.inf if retries is None else retries
        self._backoff = checked_seconds(backoff, "backoff", 0.0)
        self._started = started
        self._deadline = math.inf if seconds is None else started + seconds

    def io_timeout(self, now: float) -> float | None:
        """Return the seconds that the store may take for its next reply; None for no limit."""
        return None if self._deadline == math.inf else max(self._deadline - now, SHORTEST_IO_TIMEOUT)

    def pause_before_next(self, keys: Sequence[object], failure: TryAgain | None, now: float) -> float:
        """Count a failed try; return the seconds to pause before the next.

        The pause is random from 0 to a bound that doubles with each try ("full jitter"), so that conflicting callers
        do not collide again. Source: M. Brooker, "Exponential Backoff And Jitter", AWS, 2015.

        Args:
            keys: the watched keys.
            failure: the error of the store; None if another writer changed a watched key.
            now: the time of the clock in seconds.

        Raises:
            Conflict: no more tries are allowed.
            StoreError: no more tries are allowed, and the store failed.
        """
        left = self._deadline - now
        if left <= 0 or self.number > self._retries:
            if failure is not None:
                raise StoreError(f"{failure} (in each of {self.number} tries)") from failure
            seconds = now - self._started
            times = "in the only try" if self.number == 1 else f"in each of {self.number} tries"
            raise Conflict(
                f"Others changed the data that was read ({', '.join(map(repr, keys))}) {times} within "
                f"{seconds:.3g} s. Nothing was done. Raise retries= or timeout=, or guard data "
                "that changes constantly by a lock.",
                self.number,
                seconds,
                keys,
            )
        bound = min(self._backoff * 2.0 ** min(self.number - 1, 32), LONGEST_PAUSE)
        self.number += 1
        # Half of the remaining time, so that a last try still fits.
        return min(random.uniform(0.0, bound), left / 2)


AWAITABLE_ADVICE = {
    False: ". Pass the function to atransact(), or let it do the work itself.",
    True: ". Let the function do the work itself.",
}
"""The advice for a function that returns unfinished work, by threads and tasks."""


def checked_function(function: object, tasks: bool) -> Any:
    """Return `function` if its work ends with its call, else raise InvalidArgument.

    Args:
        function: the argument of the caller.
        tasks: True if it is called in an asyncio task, and awaited.
    """
    kind = kind_of(function)
    if kind == "coroutine function" and not tasks:
        raise InvalidArgument(f"{function!r} is a coroutine function. Pass it to atransact().")
    if "generator" in kind:
        raise InvalidArgument(f"{shown(function)} is a {kind}, whose work would run outside of the transaction.")
    return function


_UNKNOWN = object()


class Queued:
    """A write that waits for the commit; as a return value, it is replaced by its reply.

    Args:
        request: the write.
        name: its name in messages.
    """

    __slots__ = ("_reply", "name", "request")

    def __init__(self, request: object, name: str) -> None:
        self.request: Any = request
        self.name = name
        self._reply: object = _UNKNOWN

    @property
    def reply(self) -> Any:
        """The store's reply, after the commit.

        Raises:
            InvalidArgument: the transaction is not committed.
        """
        if self._reply is _UNKNOWN:
            self._too_early()
        return self._reply

    def settle(self, reply: object) -> None:
        """Set the reply after the commit, for backends."""
        self._reply = reply

    def _too_early(self, *_: object) -> NoReturn:
        raise InvalidArgument(
            f"{self.name} is only queued, and has no reply before the commit. Return it from the function, or read "
            f"its .reply afterwards. For a reply now, call tx.ask(...)."
        )

    # Code that mistakes it for the reply fails immediately.
    __bool__ = __int__ = __float__ = __iter__ = __len__ = __getitem__ = _too_early

    def __await__(self) -> Generator[None, None, "Queued"]:
        """Return immediately: `await tx.set(...)` does the same as `tx.set(...)`."""
        yield from ()
        return self

    def __repr__(self) -> str:
        return f"<queued {self.name}{'' if self._reply is _UNKNOWN else f': {self._reply!r}'}>"
