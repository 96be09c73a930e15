"""What can go wrong, as exceptions; every message says what to do."""

from collections.abc import Sequence
from typing import Any


def install(extra: str) -> str:
    """Return the command that installs an extra; from a checkout, as long as no release is published.

    Args:
        extra: its name in `pyproject.toml`.
    """
    return f'in a checkout of interlock, pip install ".[{extra}]"'


class LockError(Exception):
    """The root of everything that this library raises on purpose."""


class LockTimeout(LockError, TimeoutError):
    """The lock was not obtained within the time that the caller allowed.

    Args:
        message: what happened, and what to do.
        name, timeout, holders: as the attributes.

    Attributes:
        name: of the lock; None if it is not known.
        timeout: seconds that were allowed; None if they are not known.
        holders: each `ClaimView` that held it just now; empty if the store could not be asked.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        timeout: float | None = None,
        holders: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        self.name = name
        self.timeout = timeout
        self.holders = tuple(holders)


class LockLost(LockError):
    """The lease ended, or the claim was evicted, while the holder still worked."""


class StaleFence(LockLost):
    """A later holder of the lock has written the row, so this one has lost it; nothing was written.

    Attributes:
        fence: the highest fence that was found; 0 if it is not known.
    """

    def __init__(self, message: str = "", fence: int = 0) -> None:
        super().__init__(message)
        self.fence = fence


class NotHeld(LockError, RuntimeError):
    """The calling thread or task does not hold what it tries to release."""


class NotKept(LockError):
    """A run of `once` is done, but its result could not be kept: it was too large, or no JSON."""


class StoreError(LockError):
    """The store can't be reached, refuses, or is not fit to keep locks; the cause is chained."""


class Unsupported(StoreError):
    """This kind of store can't do that; the message says which one can."""


class UnknownOutcome(StoreError):
    """A request was sent and no answer came: it may have been done, may be done later, or never."""


class InvalidArgument(LockError, ValueError):
    """An argument is out of its range or of a wrong type; the message says what is allowed."""
