"""What can go wrong in an optimistic transaction, beside what can go wrong anywhere."""

from collections.abc import Sequence
from typing import Any

from interlock.core.errors import LockError, StoreError


class Conflict(LockError):
    """What was read was changed by somebody else, again in each try that was allowed; nothing was done.

    Attributes:
        tries: how often the function was run.
        seconds: how long all of that took.
        keys: what was watched in the last try.
    """

    def __init__(self, message: str, tries: int, seconds: float, keys: Sequence[Any]) -> None:
        super().__init__(message)
        self.tries = tries
        self.seconds = seconds
        self.keys = tuple(keys)


class TryAgain(StoreError):
    """Nothing was done, and a new try may do it: a backend raises this, and the transaction is tried again."""


class CommandRefused(StoreError):
    """The transaction was committed, but the server refused some of its commands; the others are done.

    Redis does not roll back: a command of the wrong type for its key, say, fails alone.

    Attributes:
        replies: the reply to each queued command in their order; an exception for each that was refused.
    """

    def __init__(self, message: str, replies: Sequence[Any]) -> None:
        super().__init__(message)
        self.replies = tuple(replies)
