"""Arguments of the locks: what is allowed, and what is said if it is not."""

import math
import os
from collections.abc import Iterator
from random import uniform
from typing import Any

from interlock._redis.libraries import is_async
from interlock.core.claims import MAX_TTL, Unset, checked_timeout, checked_ttl, said
from interlock.core.errors import InvalidArgument

FIRST_PAUSES = 32  # the first pause of a waiter is so many times shorter than its longest
SHORTEST_PAUSE = 0.001


def checked_client(client: Any, tasks: bool) -> Any:
    """Return `client` if it can be asked in this colour, else raise InvalidArgument.

    Args:
        client: what the caller gave.
        tasks: True if asyncio tasks will use it.
    """
    run = getattr(client, "execute_command", None)
    if not callable(run) or not hasattr(client, "pipeline"):
        raise InvalidArgument(f"give a client like redis.Redis() or valkey.Valkey(), not {type(client).__name__}")
    if hasattr(client, "command_stack"):
        raise InvalidArgument("a pipeline answers too late for a lock: give the client that it was made of")
    if is_async(client) != tasks:
        colours = "a blocking client", "one of redis.asyncio or valkey.asyncio"
        raise InvalidArgument(
            f"this lock needs {colours[tasks]}, not {colours[not tasks]}; or use the lock of the other colour "
            f"(Async…)"
        )
    return client


def checked_key(key: object) -> str | bytes:
    """Return `key` if it can be the key of a lock, else raise InvalidArgument."""
    if not isinstance(key, (str, bytes)):
        raise InvalidArgument(f"a key is a str or bytes, not {type(key).__name__}")
    if not key:
        raise InvalidArgument("a key must not be empty; give the thing that you lock a name, e.g. 'lock:book:1'")
    encoded(key, "key")
    return key


def checked_text(text: object, what: str) -> bytes:
    """Return a token or an identity as bytes, else raise InvalidArgument."""
    if not isinstance(text, (str, bytes)):
        raise InvalidArgument(f"a {what} is a str or bytes, not {type(text).__name__}")
    if not text:
        raise InvalidArgument(f"a {what} must not be empty")
    return encoded(text, what)


def encoded(text: str | bytes, what: str) -> bytes:
    """Return `text` as it goes over the wire, else raise InvalidArgument."""
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"a {what} must be encodable as UTF-8 ({error.reason})") from None


def checked_limit(ttl: object) -> float | None:
    """Return `ttl` in seconds, None for no limit, else raise InvalidArgument."""
    return None if ttl is None else checked_ttl(ttl)


def checked_seconds(value: object, what: str) -> float:
    """Return a number of seconds that is more than 0, else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(f"{what} is a number of seconds, not {said(value)}")
    if not 0 < value <= MAX_TTL:  # also refuses NaN
        raise InvalidArgument(f"{what} must be more than 0 and at most {MAX_TTL:g} seconds, not {said(value)}")
    return float(value)


def checked_flag(value: object, what: str) -> bool:
    """Return `value` if it is True or False, else raise InvalidArgument."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} is True or False, not {said(value)}")
    return value


def wait_limit(
    own: float | None | Unset, blocking: bool | Unset, timeout: float | None | Unset, otherwise: float | None
) -> float | None:
    """Return how many seconds an acquire may wait: 0 for one try, None for no limit.

    Args:
        own: the time-out that the lock was made with.
        blocking, timeout: the arguments of `acquire`.
        otherwise: what counts if nobody has said anything.
    """
    if isinstance(timeout, Unset):
        if isinstance(blocking, Unset):
            return otherwise if isinstance(own, Unset) else own
        checked_timeout(blocking, None)
        return None if blocking else 0.0
    return checked_timeout(True if isinstance(blocking, Unset) else blocking, timeout)


def milliseconds(seconds: float) -> int:
    """Return a time for the server, never shorter than the holder's own."""
    return max(1, math.ceil(seconds * 1000))


def pauses(longest: float) -> Iterator[float]:
    """Return the pauses of a waiter in seconds: they double up to `longest`, and are shortened at random."""
    pause = longest / FIRST_PAUSES
    while True:
        yield max(SHORTEST_PAUSE, uniform(pause / 2, pause))
        pause = min(longest, pause * 2)


def fresh_token() -> bytes:
    """Return a token that nobody has used."""
    return os.urandom(16).hex().encode()
