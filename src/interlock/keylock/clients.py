"""How often clients of redis-py and valkey-py send a command, and what they raise.

No library is imported.  A client encodes the name of a command once for each time that it sends the command.  This is
undocumented, but true in both libraries, for threads and tasks, and in their Clusters;
tests/redis/keylock/test_lost_replies.py checks it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.drivers.redis_py import ADVICE, advice_on, code_of, given_code, names_of
from interlock.runtime.blocks import CallSite
from interlock.runtime.clock import awake_or_not
from interlock.runtime.process import checked_pid

PRUNE_THRESHOLD = 64
"""The number of holdings above which expired ones are removed."""


@dataclass(slots=True, eq=False, repr=False)
class Holding:
    """An acquisition.

    Attributes:
        key: the held key.
        token: the value of the key while it is held.
        deadline: the end of the lease, on the clock that also counts suspended time; None without an end, or if
            unknown.
        owner: the owning thread or task; None if any may act as the owner.
        pid: the process; a forked child is another process.
        handles: the unreleased acquisitions in order; several for a re-entrant lock.
        left: None before a release; after a release without a reply, True if that was before the deadline, otherwise
            False.
        over: True after the server has reported that it no longer exists.
        lost: True if it ended before its release.
    """

    key: bytes
    token: bytes
    deadline: float | None
    owner: object
    pid: int = field(default_factory=checked_pid)
    handles: "list[Attempt]" = field(default_factory=list)
    left: bool | None = None
    over: bool = False
    lost: bool = False

    @property
    def alive(self) -> bool:
        """True if it is held, as far as this process knows without asking."""
        return self.expires_in != 0

    @property
    def expires_in(self) -> float | None:
        """Seconds until the lease expires; None without a limit."""
        if self.over or self.lost:
            return 0.0
        return None if self.deadline is None else max(0.0, self.deadline - awake_or_not())


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of acquire and its result, known even to an interrupted caller.

    Attributes:
        owner: the future holder of the lock.
        seconds: maximum wait; None for no limit.
        ttl: lease in seconds; None for no limit.
        pauses: seconds between the tries.
        token: the caller's token, which others may know; None for random tokens.
        caller: the calling thread or task, which is the owner unless the lock is shared.
        site: the call site of the entered block; None for a call of `acquire`.
        holding: the resulting acquisition.
    """

    owner: object
    seconds: float | None
    ttl: float | None
    pauses: Iterator[float]
    token: bytes | None = None
    caller: object = None
    site: CallSite | None = None
    holding: Holding | None = None

    @property
    def _over(self) -> bool:
        return self.holding is None or self.holding.over or self not in self.holding.handles

    @property
    def _hold(self) -> object:
        return self.holding

    @property
    def inherited(self) -> bool:
        """True in a forked child, which does not own its parent's acquisitions."""
        return self.holding is not None and self.holding.pid != checked_pid()


class Holdings:
    """The holdings of one lock object, or of all re-entrant ones of a server."""

    def __init__(self) -> None:
        self._held: dict[tuple[object, bytes], Holding] = {}

    def add(self, holding: Holding) -> None:
        """Add a holding; an unreleased one of the same owner and key is marked as lost."""
        old = self._held.get((holding.owner, holding.key))
        if old is not None:
            old.over = old.lost = True
        self._held[holding.owner, holding.key] = holding
        if len(self._held) > PRUNE_THRESHOLD:
            for each in self._held.copy().values():
                if not each.alive:
                    self.remove(each)

    def find(self, owner: object, key: bytes, inherits: Callable[[object], bool]) -> Holding | None:
        """Return the holding of `owner`, else one without an owner, else an inherited one.

        Args:
            owner: a thread or task; None if the lock does not distinguish owners.
            key: the held key.
            inherits: True if `owner` may act for the owner of the result.
        """
        here = checked_pid()
        for each in (owner, None):
            mine = self._held.get((each, key))
            if mine is not None and mine.pid == here:
                return mine
        known = self._held.copy().values()
        left = [each for each in known if each.key == key and each.pid == here and inherits(each.owner)]
        return next((each for each in left if each.alive), left[-1] if left else None)

    def remove(self, holding: Holding) -> None:
        """Remove a holding."""
        index = holding.owner, holding.key
        if self._held.get(index) is holding:
            self._held.pop(index, None)


_CLIENTS = {"RedisError", "ValkeyError", "RedisClusterException", "ValkeyClusterException"}


class LostReply(UnknownOutcome):
    """The connection failed, perhaps after sending a command: retry immediately."""


_FULL_POOL = "All connections of the client's pool are in use. Raise its max_connections."
_UNREACHABLE = "The server is unreachable. Check that it is running, and check the address."
_BROKEN = "The connection failed, so the outcome is unknown. Retry."
_MEANINGS: tuple[tuple[str, str, type[StoreError], str], ...] = (
    ("NOAUTH", "", StoreError, ADVICE["NOAUTH"]),
    ("MaxConnectionsError", "", StoreError, _FULL_POOL),
    ("ConnectionError", "too many connections", StoreError, _FULL_POOL),
    ("TimeoutError", "", UnknownOutcome, "No reply from the server in time, so the outcome is unknown. Retry."),
    ("LOADING", "", UnknownOutcome, ADVICE["LOADING"]),
    ("ConnectionError", "connecting to", UnknownOutcome, _UNREACHABLE),
    ("OSError", "connecting to", UnknownOutcome, _UNREACHABLE),
    ("ConnectionError", "", LostReply, _BROKEN),
    ("OSError", "", LostReply, _BROKEN),
    ("NOPERM", "", StoreError, f"{ADVICE['NOPERM']} Scripts also need get, del and pexpire."),
)
"""Class or code of an exception, part of its text, error and advice; the first match counts."""


def translated(error: Exception, command: str, key: object) -> StoreError | None:
    """Return an exception of a client as an error of this library.

    Args:
        error: the exception of the client.
        command: the command that the client was to send.
        key: the key of the lock.

    Returns:
        The error, to be raised from the exception; None if the exception is not a failure of the server or the
        network.
    """
    signs, text = names_of(error), str(error)
    what = f"{command} on key {key!r} failed: {text.rstrip('.') or type(error).__name__}"
    code = code_of(error) if signs & _CLIENTS else ""
    signs |= {given_code(error), code}
    for sign, part, kind, advice in _MEANINGS:
        if sign in signs and part in text.lower():
            return kind(f"{what}. {advice}")
    return StoreError(f"{what}. {advice_on(code, text)}") if signs & _CLIENTS else None


class Sent:
    """Notes whether a command was sent more than once: clients retry silently.

    After a lost reply, the retry of a release finds nothing, which would look like a lost lock.  The client's own
    retries stay as configured; they are only counted here.  (A Cluster's client also resends a command if a slot has
    moved.)

    Attributes:
        again: True if a command was sent again.
    """

    again = False


class CommandName(str):
    """The name of a command, which counts its encodings: the attempts to send it."""

    times = 0

    def encode(self, *how: str) -> bytes:
        """Return the name as bytes."""
        if not how:  # with arguments it is only read, such as by the Clusters' parsers of commands
            self.times += 1
        return super().encode(*how)


_reentrant: "WeakKeyDictionary[object, Holdings]" = WeakKeyDictionary()


def reentrant_of(client: object) -> Holdings:
    """Return the holders of a client's re-entrant locks; shared connections share them."""
    try:
        return _reentrant.setdefault(getattr(client, "connection_pool", None) or client, Holdings())
    except TypeError:  # not hashable, or not weakly referenceable
        return Holdings()


def as_bytes(reply: object) -> bytes:
    """Return a reply as bytes, even if the client decodes replies."""
    return reply if isinstance(reply, bytes) else str(reply).encode()
