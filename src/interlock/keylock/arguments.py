"""Checks of the arguments of locks of one key."""

import math
from collections.abc import Iterator
from random import uniform
from typing import Any

from interlock.core.claims import Unset, checked_timeout
from interlock.core.errors import InvalidArgument
from interlock.drivers.redis_py import check_interface

SHORTEST_PAUSE = 0.001  # seconds


def checked_client(client: object, tasks: bool) -> Any:
    """Return `client` if it is of the right kind, else raise InvalidArgument.

    Args:
        client: the argument of the caller.
        tasks: True if asyncio tasks will use it.
    """
    if not callable(getattr(client, "execute_command", None)) or not hasattr(client, "pipeline"):
        raise InvalidArgument(
            f"client must be a client such as redis.Redis() or valkey.Valkey(), not {type(client).__name__}."
        )
    if hasattr(client, "command_stack"):
        raise InvalidArgument("A pipeline replies too late for a lock. Pass the client of the pipeline.")
    check_interface(client, tasks, "a lock like KeyLock", "a lock like AsyncKeyLock")
    return client


def checked_bytes(text: object, what: str, hint: str = "") -> bytes:
    """Return a key, token or identity as bytes, else raise InvalidArgument."""
    if not isinstance(text, (str, bytes)):
        raise InvalidArgument(f"The {what} must be a str or bytes, not {type(text).__name__}.")
    if not text:
        raise InvalidArgument(f"The {what} must not be empty.{hint}")
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"The {what} must be encodable as UTF-8 ({error.reason}).") from None


def wait_limit(
    own: float | None | Unset, blocking: bool | Unset, timeout: float | None | Unset, otherwise: float | None
) -> float | None:
    """Return the maximum wait in seconds: 0 for one try, None for no limit.

    Args:
        own: the time-out of the lock.
        blocking, timeout: the arguments of `acquire`.
        otherwise: the default.
    """
    if isinstance(timeout, Unset) and isinstance(blocking, Unset):
        return otherwise if isinstance(own, Unset) else own
    seconds = None if isinstance(timeout, Unset) else timeout
    return checked_timeout(True if isinstance(blocking, Unset) else blocking, seconds)


def milliseconds(seconds: float | None) -> int | None:
    """Return a time for the server, never shorter than the holder's own; None for no limit."""
    return None if seconds is None else max(1, math.ceil(seconds * 1000))


def pauses(first: float, longest: float, least: float) -> Iterator[float]:
    """Return the pauses of a waiter in seconds: they double, and are shortened at random so that waiters spread.

    Args:
        first, longest: seconds, the first one and the longest one at most.
        least: what part of it a pause lasts at least.
    """
    while True:
        yield max(SHORTEST_PAUSE, uniform(first * least, first))
        first = min(longest, first * 2)
