"""What clients of redis-py and valkey-py do behind one command: how often they send it, and what they raise.

No library is imported.  That a client encodes the name of a command once for each time that it sends it is not
documented, but it is so in both libraries, for threads and tasks, and in their Clusters;
tests/redis/keylock/test_lost_replies.py holds them to it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.drivers.redis_py import ADVICE, advice_on, code_of, given_code, names_of
from interlock.runtime.blocks import CallSite
from interlock.runtime.clock import awake_or_not
from interlock.runtime.process import checked_pid

MANY = 64
"""So many holdings are kept before those that have lapsed are cleared away."""


@dataclass(slots=True, eq=False, repr=False)
class Holding:
    """One acquisition.

    Attributes:
        key: what is held.
        token: what is in the key as long as it is held.
        deadline: when the lease ends, on the clock that also counts suspended time; None if it does not, or nobody
            knows.
        owner: the thread or task that holds it; None if any may speak for it.
        pid: the process; a forked child is another one, however it was forked.
        handles: the acquisitions that are not released, in order; several for a re-entrant lock.
        left: None, unless it was perhaps released already: that was asked for, and no answer came.  Then True if that
            was before the deadline.
        over: True when the server has said that it does not exist any more.
        lost: True if it ended before it was released.
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
        """Is it held, as far as this process can know without asking?"""
        return self.expires_in != 0

    @property
    def expires_in(self) -> float | None:
        """Seconds until the lease ends; None without a limit."""
        if self.over or self.lost:
            return 0.0
        return None if self.deadline is None else max(0.0, self.deadline - awake_or_not())


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of acquire, and what came of it: known even to a caller that was interrupted.

    Attributes:
        owner: the future holder of the lock.
        seconds: how long to wait at most; None for no limit.
        ttl: seconds of lease; None for no limit.
        pauses: seconds between the tries.
        token: chosen by the caller, so that others may use it too; None for random ones.
        caller: the calling thread or task, which is the owner unless the lock is shared.
        site: the call site of the entered block; None for a call of `acquire`.
        holding: what was obtained.
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
    """The holdings of one lock object, or of all re-entrant ones of a server; any thread may use it."""

    def __init__(self) -> None:
        self._held: dict[tuple[object, bytes], Holding] = {}

    def add(self, holding: Holding) -> None:
        """Keep a new one; one of the same owner and key that was not released has been lost."""
        old = self._held.get((holding.owner, holding.key))
        if old is not None:
            old.over = old.lost = True
        self._held[holding.owner, holding.key] = holding
        if len(self._held) > MANY:
            for each in self._held.copy().values():
                if not each.alive:
                    self.remove(each)

    def find(self, owner: object, key: bytes, inherits: Callable[[object], bool]) -> Holding | None:
        """Return what `owner` holds, else what has no owner, else what it inherits.

        Args:
            owner: a thread or a task; None if the lock does not tell them apart.
            key: what is held.
            inherits: whether `owner` may speak for the owner that it gets.
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
        """Forget one."""
        index = holding.owner, holding.key
        if self._held.get(index) is holding:
            self._held.pop(index, None)


_CLIENTS = {"RedisError", "ValkeyError", "RedisClusterException", "ValkeyClusterException"}


class LostReply(UnknownOutcome):
    """The connection broke after a command was, perhaps, sent: worth asking again at once."""


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
"""For a class or code of an exception and a part of its text: what it means, and what to do; the first one counts."""


def translated(error: Exception, command: str, key: object) -> StoreError | None:
    """Return an exception of a client as an error of this library.

    Args:
        error: what the client raised.
        command: the command that it was asked to send.
        key: the key of the lock.

    Returns:
        The error, whose cause is to be `error`; None if it is no failure of the server or of the way to it.
    """
    signs, text = names_of(error), str(error)
    what = f"{command} on key {key!r} failed:  {text or type(error).__name__}"
    code = code_of(error) if signs & _CLIENTS else ""
    signs |= {given_code(error), code}
    for sign, part, kind, advice in _MEANINGS:
        if sign in signs and part in text.lower():
            return kind(f"{what}. {advice}")
    return StoreError(f"{what}. {advice_on(code, text)}") if signs & _CLIENTS else None


class Sent:
    """Whether a question went to the server more than once: clients try again by themselves, and do not tell.

    A release whose first reply was lost is then answered "nothing there", which would look as if the lock had been
    lost.  The client's own retries stay as its user wants them: here they are only counted.  (A Cluster's client also
    sends again where a slot has moved.)

    Attributes:
        again: True if some command was sent again.
    """

    again = False


class CommandName(str):
    """The name of a command, which counts how often a client encodes it: how often it begins to send it."""

    times = 0

    def encode(self, *how: str) -> bytes:
        """Return it for the wire."""
        if not how:  # with arguments it is looked at, as by the Clusters' parsers of commands
            self.times += 1
        return super().encode(*how)


_reentrant: "WeakKeyDictionary[object, Holdings]" = WeakKeyDictionary()


def reentrant_of(client: object) -> Holdings:
    """Return the holders of the re-entrant locks of a client; clients that share their connections share them."""
    try:
        return _reentrant.setdefault(getattr(client, "connection_pool", None) or client, Holdings())
    except TypeError:  # can't be hashed, or not be referred to weakly
        return Holdings()


def as_bytes(reply: object) -> bytes:
    """Return a reply as bytes, also of a client that decodes all replies."""
    return reply if isinstance(reply, bytes) else str(reply).encode()
