"""Claims: what a program asks for, and the one formula that decides which claims hold the lock."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from interlock.core.errors import InvalidArgument

State: TypeAlias = Literal["pending", "queued", "using", "done"]
PENDING: Literal["pending"] = "pending"  # in line, flag up: excludes others
QUEUED: Literal["queued"] = "queued"  # in line, flag down: waits without excluding (registers only)
USING: Literal["using"] = "using"  # holds the lock
DONE: Literal["done"] = "done"  # over; kept only for its fence, or as the record of a completed run

WRITER_UNITS = 1 << 30
"""The capacity of a reader/writer lock: a writer takes all of it, a reader one unit."""

DEFAULT_TTL = 30.0
MIN_TTL = 0.1
MAX_NAME = 1000
MAX_TTL = 10 * 365 * 86400.0
SHORTEST = 0.001  # seconds
LEASES_END = (
    f"; leases always end, so that a dead holder can't block the others for ever; leave it out for {DEFAULT_TTL:g} s"
)
MAX_LABEL = 200
MOST_SHOWN = 60  # characters of a wrong value in a message
MICROS = 1_000_000  # in a second
SEPARATOR = "\0"  # between the namespace and the name; neither may contain it


class Unset:
    """The type of `UNSET`: the argument was left out, so the lock's own value counts."""

    def __repr__(self) -> str:
        return "<not given>"


UNSET = Unset()


class LockSpec(NamedTuple):
    """What one lock object asks for, each time that it is acquired.

    Attributes:
        key: namespace and name, joined by `SEPARATOR`.
        units: how much of the capacity the claim takes.
        capacity: how much there is.
        ttl: seconds until the lease ends unless it is renewed.
        label: free text, shown where the line is listed.
        once: True if it is only wanted while no record of a completed run is kept.
    """

    key: str
    units: int = 1
    capacity: int = 1
    ttl: float = DEFAULT_TTL
    label: str = ""
    once: bool = False


class Claim(NamedTuple):
    """One place in a line.

    Attributes:
        id: unique for ever, never used again.
        spec: what is asked for.
        who: the thread or task that asks.
    """

    id: str
    spec: LockSpec
    who: str = ""


class ClaimView(NamedTuple):
    """A claim as seen from outside.

    Attributes:
        name: the lock's name, without its namespace.
        id: the claim's id.
        state: "using" (a holder), "pending" (a waiter), or "done": no claim, but the record of a completed run of
            `once`, which is kept until it expires; it has no id.
        units, capacity: what it asks for.
        fence: the fencing token of a holder; None for a waiter.
        host, pid, thread, label: of the program that made it.
        since: when it was made, seconds since the epoch, by the clock of its host or the store; None for a record.
        expires_in: seconds until the lease ends unless it is renewed.
        held_since: since when it holds the lock, as `since`; None for a waiter, and where the store does not know.
    """

    name: str
    id: str
    state: Literal["pending", "using", "done"]
    units: int
    capacity: int
    fence: int | None
    host: str
    pid: int
    thread: str
    label: str
    since: float | None
    expires_in: float
    held_since: float | None = None

    @property
    def waiting_since(self) -> float | None:
        """When it entered the line, also for a holder: the same as `since`."""
        return self.since

    @property
    def kind(self) -> str:
        """The kind of lock in words: exclusive, reader, writer, or semaphore k/n; once for a record."""
        return "once" if self.state == DONE else kind_of(self.units, self.capacity)


class Check(NamedTuple):
    """One finding of `doctor`.

    Attributes:
        name: what was looked at.
        status: "ok", "warn" (works, but look at it) or "fail" (do not use this store).
        detail: what was found, and what to do if it is not ok.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str


def record_view(key: str, seconds: float) -> ClaimView:
    """Return the record of a completed run as people see it.

    Args:
        key: of the line.
        seconds: for which it is kept yet.
    """
    return ClaimView(name_of(key), "", DONE, 0, 0, None, "", 0, "", "", None, seconds)


def kind_of(units: int, capacity: int) -> str:
    """Return the kind of lock that asks for `units` of `capacity`, in words."""
    if capacity == WRITER_UNITS:
        return "writer" if units == capacity else "reader"
    return "exclusive" if capacity == 1 else f"semaphore {units}/{capacity}"


def fits(units: int, capacity: int, others: Sequence[tuple[int, int]]) -> bool:
    """The one formula: is there room for a claim beside `others`?

    Claims that disagree about the capacity are bound by the smallest one among them, so that, say, an
    exclusive lock and a semaphore of the same name still exclude each other.

    Args:
        units: what the claim asks for.
        capacity: what it believes there is.
        others: (units, capacity) of every claim that counts against it.

    Returns:
        True when all of them together stay within the capacity.
    """
    for taken, limit in others:
        units += taken
        capacity = min(capacity, limit)
    return units <= capacity


def namespace_of(key: str) -> str:
    """Return the namespace of a key."""
    return key.partition(SEPARATOR)[0]


def name_of(key: str) -> str:
    """Return the name in a key."""
    return key.partition(SEPARATOR)[2]


def keys_of(key: str, known: Iterable[str]) -> list[str]:
    """Return the keys that `key` means: itself, or, without a name, all known keys of its namespace."""
    return [each for each in known if each.startswith(key)] if key.endswith(SEPARATOR) else [key]


def checked_name(name: object, what: str = "lock name") -> str:
    """Return `name` if it can be the name of a lock, else raise InvalidArgument."""
    if name == "":
        raise InvalidArgument(f"a {what} must not be empty; give the thing that you lock a name, e.g. 'book:1'")
    return checked_text(name, what, MAX_NAME)


def checked_text(text: object, what: str, longest: int) -> str:
    """Return `text` if it is a str that every store can keep, else raise InvalidArgument."""
    if not isinstance(text, str):
        raise InvalidArgument(f"a {what} is a str, not {type(text).__name__}; convert it, e.g. str(...)")
    if len(text) > longest:
        raise InvalidArgument(f"a {what} has at most {longest} characters, this one has {len(text)}; hash the rest")
    if SEPARATOR in text:
        raise InvalidArgument(f"a {what} must not contain a NUL character; replace it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"a {what} must be encodable as UTF-8 ({error.reason}); replace lone surrogates"
        ) from None
    return text


def checked_seconds(
    value: object, what: str, least: float = SHORTEST, most: float = MAX_TTL, advice: str = ""
) -> float:
    """Return `value` as a float if it is a number of seconds in a range, else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:  # also NaN
        raise InvalidArgument(f"{what} is a number of seconds from {least:g} to {most:g}, not {said(value)}{advice}")
    return float(value)


def checked_ttl(ttl: object) -> float:
    """Return `ttl` in seconds as a float if it can be a lease, else raise InvalidArgument."""
    return checked_seconds(ttl, "ttl", MIN_TTL, advice=LEASES_END)


def checked_at_least(at_least: object, ttl: float | None) -> float:
    """Return how many seconds a lock is kept at least, else raise InvalidArgument.

    Args:
        at_least: what was given.
        ttl: the lease that was asked for; None if it may be made as long as that.
    """
    seconds = checked_seconds(at_least, "at_least", 0.0)
    if ttl is not None and seconds > ttl:
        raise InvalidArgument(
            f"at_least={said(at_least)} is longer than ttl={said(ttl)}, so the lock could get free before if this "
            f"process ends: leave ttl out, or make it as long"
        )
    return seconds


def checked_at_most(at_most: object, at_least: float) -> float:
    """Return after how many seconds a lock is lost at the latest, else raise InvalidArgument."""
    seconds = checked_seconds(at_most, "at_most")
    if at_least > seconds:
        raise InvalidArgument(f"at_least={said(at_least)} is longer than at_most={said(at_most)}: change one of them")
    return seconds


def checked_timeout(blocking: object, timeout: object) -> float | None:
    """Translate the arguments of `acquire` as `threading.Lock` does.

    Args:
        blocking: False for one try.
        timeout: seconds; None or -1 for no limit, which more than ten years are too; 0 for one try.

    Returns:
        Seconds to wait at most; None for no limit.

    Raises:
        InvalidArgument: a combination or a value that makes no sense.
    """
    if not isinstance(blocking, bool) and not (type(blocking) is int and blocking in (0, 1)):
        raise InvalidArgument(
            f"blocking is True or False, not {said(blocking)}; did you mean timeout={said(blocking)}?"
        )
    if timeout is None or timeout == -1:
        return None if blocking else 0.0
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout != timeout:
        raise InvalidArgument(f"timeout is a number of seconds or None, not {said(timeout)}")
    if timeout < 0:
        raise InvalidArgument(f"timeout must not be negative, not {said(timeout)}; None or -1 waits without a limit")
    if not blocking:
        raise InvalidArgument("a try that does not block can't have a timeout; leave out one of the two")
    return None if timeout > MAX_TTL else float(timeout)


def checked_flag(value: object, what: str) -> bool:
    """Return `value` if it is True or False, else raise InvalidArgument."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} is True or False, not {said(value)}")
    return value


def checked_count(value: object, what: str) -> int:
    """Return `value` if it is a whole number of units that a lock can have, else raise InvalidArgument."""
    most = WRITER_UNITS - 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(f"{what} is a whole number from 1 to {most}, not {said(value)}")
    return int(value)


def said(value: object) -> str:
    """Return `value` as it is shown in a message: not without end, and not every int can be written."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__} that can't be shown"
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"


def shown_text(text: str) -> str:
    """Return a text from outside, as a thread's name, such that every store can keep it and a line can show it."""
    if len(text) <= MAX_LABEL and text.isprintable():
        return text
    # Cut last: what is escaped is longer.
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
