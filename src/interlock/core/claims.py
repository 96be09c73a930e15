"""Claims, and the one formula that decides which claims hold the lock."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from interlock.core.errors import InvalidArgument

State: TypeAlias = Literal["pending", "queued", "using", "done"]
PENDING: Literal["pending"] = "pending"  # in line, flag up: excludes others
QUEUED: Literal["queued"] = "queued"  # in line, flag down: waits without excluding (registers only)
USING: Literal["using"] = "using"  # holds the lock
DONE: Literal["done"] = "done"  # completed; kept only for its fence, or as the record of a run

WRITER_UNITS = 1 << 30
"""The capacity of a reader/writer lock: a writer takes all of it, a reader 1."""

DEFAULT_TTL = 30.0
MIN_TTL = 0.1
MAX_NAME = 1000
MAX_TTL = 10 * 365 * 86400.0
MIN_DURATION = 0.001  # seconds
MAX_LABEL = 200
MAX_SHOWN_LENGTH = 60  # characters of an invalid value in a message
MICROS = 1_000_000  # in a second
MAX_INSTANCE = 64
INSTANCE_MARK = "\t"  # ends an instance, and the mark of its process, before the printable name of a thread
SEPARATOR = "\0"  # between the namespace and the name; neither may contain it


class Unset:
    """The type of `UNSET`, the default of an argument: use the lock's own value."""

    def __repr__(self) -> str:
        return "<not given>"


UNSET = Unset()


class LockSpec(NamedTuple):
    """The parameters of each claim of a lock object.

    Attributes:
        key: namespace and name, joined by `SEPARATOR`.
        units: the units that the claim takes.
        capacity: the units that the lock has.
        ttl: seconds until the lease expires unless it is renewed.
        label: free text, shown in listings.
        once: True for a run of `once`: the claim is dropped if a record of a completed run exists.
        waits_for_server: True if no local hand-off grants it the lock, because callers that count the waiters rely on
            waiters not having begun.
    """

    key: str
    units: int = 1
    capacity: int = 1
    ttl: float = DEFAULT_TTL
    label: str = ""
    once: bool = False
    waits_for_server: bool = False


class Claim(NamedTuple):
    """A request in the line of a lock.

    Attributes:
        id: a unique id that is never reused.
        spec: the parameters of the claim.
        who: the name of the calling thread or task.
    """

    id: str
    spec: LockSpec
    who: str = ""


class ClaimView(NamedTuple):
    """A claim in a listing.

    Attributes:
        name: the lock's name, without its namespace.
        id: the claim's id.
        state: "using" (a holder), "pending" (a waiter), or "done" (the record of a completed run of `once`, which
            has no id).
        units, capacity: the units of the claim and of the lock.
        fence: the fencing token of a holder; None for a waiter.
        host, pid, thread, label: the program that made the claim.
        since: the time of creation, seconds since the epoch, by the clock of the host or store; None for a record.
        expires_in: seconds until the lease, or the record, expires.
        held_since: the time of the acquisition, like `since`; None for a waiter, or if the store does not record it.
        instance: the `instance` of the connection; "" if it has none, and for a detached claim.
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
    instance: str = ""

    @property
    def waiting_since(self) -> float | None:
        """The time when the claim entered the line: the same as `since`."""
        return self.since

    @property
    def kind(self) -> str:
        """The kind of lock: exclusive, reader, writer, semaphore k/n, or once."""
        return "once" if self.state == DONE else kind_of(self.units, self.capacity)


class Check(NamedTuple):
    """A finding of `doctor`.

    Attributes:
        name: the subject of the check.
        status: "ok", "warn" (usable, with a risk) or "fail" (do not use this store).
        detail: the finding, and the next step if the status is not "ok".
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str


def record_view(key: str, seconds: float) -> ClaimView:
    """Return the view of the record of a completed run.

    Args:
        key: the key of the line.
        seconds: the time until the record expires.
    """
    return ClaimView(name_of(key), "", DONE, 0, 0, None, "", 0, "", "", None, seconds)


def with_instance(view: ClaimView) -> ClaimView:
    """Return a view of a store with its instance, which the text of the thread contains."""
    instance, marked, rest = view.thread.partition(INSTANCE_MARK)
    return view._replace(instance=instance, thread=rest.partition(INSTANCE_MARK)[2]) if marked else view


def thread_of(who: str) -> str:
    """Return the name of the thread or task of a claim, without an instance."""
    return who.rpartition(INSTANCE_MARK)[2]


def kind_of(units: int, capacity: int) -> str:
    """Return the kind of lock, as text, for `units` of `capacity`."""
    if capacity == WRITER_UNITS:
        return "writer" if units == capacity else "reader"
    return "exclusive" if capacity == 1 else f"semaphore {units}/{capacity}"


def fits(units: int, capacity: int, others: Sequence[tuple[int, int]]) -> bool:
    """Return True if a claim fits beside `others`: the one formula.

    If claims disagree about the capacity, the smallest one counts.  So an exclusive lock and a semaphore of the same
    name still exclude each other.

    Args:
        units: the units of the claim.
        capacity: the capacity that the claim states.
        others: (units, capacity) of every claim that counts against it.

    Returns:
        True if all of them together stay within the capacity.
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
    """Return the key itself, or all known keys of its namespace if it has no name."""
    return [each for each in known if each.startswith(key)] if key.endswith(SEPARATOR) else [key]


def checked_name(name: object, what: str = "lock name") -> str:
    """Return `name` if it is a valid lock name, else raise InvalidArgument."""
    if name == "":
        raise InvalidArgument(f"The {what} must not be empty. Name the resource, e.g. 'book:1'.")
    return checked_text(name, what, MAX_NAME)


def checked_text(text: object, what: str, longest: int) -> str:
    """Return `text` if every store can keep it, else raise InvalidArgument."""
    if not isinstance(text, str):
        raise InvalidArgument(f"The {what} must be a str, not {type(text).__name__}. Convert it, e.g. str(...).")
    if len(text) > longest:
        raise InvalidArgument(f"The {what} has {len(text)} characters; the limit is {longest}. Hash the rest.")
    if SEPARATOR in text:
        raise InvalidArgument(f"The {what} must not contain a NUL character. Replace it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"The {what} must be encodable as UTF-8 ({error.reason}). Replace lone surrogates."
        ) from None
    return text


def checked_instance(instance: object) -> str:
    """Return `instance` if it is a valid name of a process, else raise InvalidArgument."""
    if (
        not isinstance(instance, str)
        or not (instance.isascii() and instance.isprintable())
        or " " in instance
        or not 1 <= len(instance) <= MAX_INSTANCE
    ):
        raise InvalidArgument(
            f"instance must be 1 to {MAX_INSTANCE} printable ASCII characters without spaces, not "
            f"{shown_value(instance)}. Give a stable name of this process, e.g. the name of its pod."
        )
    return instance


def checked_seconds(
    value: object, what: str, least: float = MIN_DURATION, most: float = MAX_TTL, advice: str = ""
) -> float:
    """Return `value` as seconds if it is in the range, else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:  # also NaN
        raise InvalidArgument(
            f"{what} must be between {least:g} and {most:g} seconds, not {shown_value(value)}.{advice}"
        )
    return float(value)


def checked_ttl(ttl: object, least: float = MIN_TTL, default: float = DEFAULT_TTL) -> float:
    """Return `ttl` as seconds if it is a valid lease, else raise InvalidArgument.

    Args:
        ttl: the argument of the caller.
        least, default: the shortest and the default lease of the store, in seconds.
    """
    advice = (
        " Leases always expire, so a crashed holder cannot block others forever. "
        f"Omit ttl for the default of {default:g} s."
    )
    return checked_seconds(ttl, "ttl", least, advice=advice)


def checked_at_least(at_least: object, ttl: float | None) -> float:
    """Return the minimum hold time in seconds, else raise InvalidArgument.

    Args:
        at_least: the argument of the caller.
        ttl: the lease that the caller asked for, in seconds; None if it may be extended to `at_least`.
    """
    seconds = checked_seconds(at_least, "at_least", 0.0)
    if ttl is not None and seconds > ttl:
        raise InvalidArgument(
            f"at_least={shown_value(at_least)} is longer than ttl={shown_value(ttl)}, so the lock would be free "
            f"too early if this process died. Omit ttl, or make it at least as long."
        )
    return seconds


def checked_at_most(at_most: object, at_least: float) -> float:
    """Return the maximum hold time in seconds, else raise InvalidArgument."""
    seconds = checked_seconds(at_most, "at_most")
    if at_least > seconds:
        raise InvalidArgument(
            f"at_least={shown_value(at_least)} is longer than at_most={shown_value(at_most)}. Change one."
        )
    return seconds


def checked_timeout(blocking: object, timeout: object) -> float | None:
    """Translate the arguments of `acquire`, like `threading.Lock`.

    Args:
        blocking: False for one try.
        timeout: seconds; None, -1 or more than ten years for no limit; 0 for one try.

    Returns:
        The maximum wait in seconds; None for no limit.

    Raises:
        InvalidArgument: the values are invalid, or contradict each other.
    """
    if not isinstance(blocking, bool) and not (type(blocking) is int and blocking in (0, 1)):
        raise InvalidArgument(
            f"blocking must be True or False, not {shown_value(blocking)}. "
            f"Did you mean timeout={shown_value(blocking)}?"
        )
    if timeout is None or timeout == -1:
        return None if blocking else 0.0
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout != timeout:
        raise InvalidArgument(f"timeout must be a number of seconds or None, not {shown_value(timeout)}.")
    if timeout < 0:
        raise InvalidArgument(f"timeout must not be negative: {shown_value(timeout)}. Use None or -1 for no limit.")
    if not blocking:
        raise InvalidArgument("blocking=False and timeout= contradict each other. Omit one of them.")
    return None if timeout > MAX_TTL else float(timeout)


def checked_flag(value: object, what: str) -> bool:
    """Return `value` if it is True or False, else raise InvalidArgument."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} must be True or False, not {shown_value(value)}.")
    return value


def checked_count(value: object, what: str) -> int:
    """Return `value` if it is a valid number of units, else raise InvalidArgument."""
    most = WRITER_UNITS - 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(f"{what} must be a whole number from 1 to {most}, not {shown_value(value)}.")
    return int(value)


def shown_value(value: object) -> str:
    """Return `value` for a message: shortened, even if its repr fails."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__} whose repr fails"
    return text if len(text) <= MAX_SHOWN_LENGTH else text[:MAX_SHOWN_LENGTH] + "…"


def shown_text(text: str) -> str:
    """Return a foreign text, such as a thread's name, as one line that every store can keep."""
    if len(text) <= MAX_LABEL and text.isprintable():
        return text
    # Cut last, because escaping lengthens the text.
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
