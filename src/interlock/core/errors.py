"""Exceptions of interlock; each message gives the cause and the next step."""

from collections.abc import Sequence
from typing import Any


def install(extra: str) -> str:
    """Return the command that installs an extra from a checkout of the project.

    Args:
        extra: its name in `pyproject.toml`.
    """
    return f'in a checkout of interlock, pip install ".[{extra}]"'


class LockError(Exception):
    """The base class of every exception that this library raises on purpose."""


class LockTimeout(LockError, TimeoutError):
    """The lock could not be acquired within the caller's time limit.

    Args:
        message: the cause, and the next step.
        name, timeout, holders: the attributes of the same names.

    Attributes:
        name: the lock's name; None if unknown.
        timeout: the time limit in seconds; None if unknown.
        holders: a `ClaimView` for each holder; empty if the store could not be asked.
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


class Busy(LockTimeout):
    """As many others wait for the lock as its `max_waiters` allows, so this caller did not wait.

    Args:
        message, name, timeout, holders: as for `LockTimeout`.
        waiters: the attribute of the same name.

    Attributes:
        waiters: the number of waiters.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        timeout: float | None = None,
        holders: Sequence[Any] = (),
        waiters: int = 0,
    ) -> None:
        super().__init__(message, name=name, timeout=timeout, holders=holders)
        self.waiters = waiters


class LockLost(LockError):
    """The lease expired, or the claim was evicted, while the caller held the lock."""


class StaleFence(LockLost):
    """A later holder has written the row, so this write was rejected.

    Attributes:
        fence: the highest fence that was found; 0 if unknown.
    """

    def __init__(self, message: str = "", fence: int = 0) -> None:
        super().__init__(message)
        self.fence = fence


class NotHeld(LockError, RuntimeError):
    """The calling thread or task does not hold the lock that it releases."""


class NotKept(LockError):
    """A run of `once` completed, but its result was too large or not JSON."""


class PayloadMismatch(LockError):
    """A run of `once` has another payload than the recorded or the running one of the same name.

    Attributes:
        name: the run's name.
    """

    def __init__(self, message: str = "", name: str = "") -> None:
        super().__init__(message)
        self.name = name


class StoreError(LockError):
    """The store is unavailable, refuses a request, or is unsuitable for locks."""


class Unsupported(StoreError):
    """This kind of store lacks the feature; the message names a store that has it.

    Attributes:
        feature: the missing feature, such as "readers" or "once"; "" if the lock, not the store, lacks a property.
    """

    def __init__(self, text: str, feature: str = "") -> None:
        super().__init__(text)
        self.feature = feature


class UnknownOutcome(StoreError):
    """A request got no reply: the store may or may not perform it."""


class InvalidArgument(LockError, ValueError):
    """An argument is out of range or has the wrong type."""
