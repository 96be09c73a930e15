"""What the locks and grants of one connection share, in both colours."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from interlock.core.acquire import AcquireCall
from interlock.core.claims import MAX_NAME, SEPARATOR, Claim, ClaimView, LockSpec, checked_text, checked_ttl
from interlock.core.effects import Op
from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.core.redaction import masked
from interlock.core.oldstore import Common
from interlock.locks import events
from interlock.locks.busy import LastHolders
from interlock.locks.events import Event, Kind, Listeners
from interlock.locks.owners import Holds
from interlock.runtime import log

S = TypeVar("S", bound=Common)

TRY_LIMIT = 1.0  # seconds that one try may take when the store itself is busy
STAYS_IN_LINE = "could not take a claim out of the line, its lease will end: %s"
GONE_FROM_LINE = "its claim was gone, it expired or was evicted; another one lines up in its place"
LOG_LOOK = 1.0  # seconds after which the level of the logger is looked at again


class AcquireOptions(NamedTuple):
    """How a lock object acquires, and keeps what it has.

    Attributes:
        timeout: seconds to wait at most unless `acquire` says otherwise; None for no limit.
        renew: whether the lease is renewed.
        on_lost: whom to tell of a loss.
        at_least: seconds that the claim stays at least, from the moment when it holds the lock.
    """

    timeout: float | None = None
    renew: bool = True
    on_lost: Callable[[Any], object] | None = None
    at_least: float = 0.0


def name_of(key: str) -> str:
    """Return the name in a key."""
    return key.partition(SEPARATOR)[2]


Entering: TypeAlias = tuple[Claim, Any] | AcquireCall
"""A call of acquire that has not come to its end: its claim, and whose it is (a thread, or an event loop)."""


def closed_meanwhile(spec: LockSpec) -> StoreError:
    """Return the error for a call of acquire whose connection was closed meanwhile."""
    return StoreError(f"the connection was closed while {name_of(spec.key)!r} was acquired: connect again")


class BaseSession(Generic[S]):
    """A store, and how a program is connected to it.

    Args:
        kind: the name of the class whose objects are made for it.
        store: where the claims are kept.
        namespace: separates applications that share a store.
        ttl: seconds of lease of its locks, unless they say otherwise.

    Attributes:
        source: what connects to it, and by which URL; None if it was made from something else.
        closed: True from the beginning of `close()`.
        listeners: who is told what happens on this connection.
        entering: the calls of acquire that have not come to their end, by claim.
        leaving: the claims that are being released, and in which thread or on which loop; `close()` waits for them.
        holds: of re-entrant locks.
        look_at_log: when to find out again whether the log is a listener; monotonic.
    """

    def __init__(self, kind: str, store: S, namespace: str, ttl: float) -> None:
        self._kind = kind
        self.store = store
        self.namespace = checked_text(namespace, "namespace", MAX_NAME)
        self.ttl = checked_ttl(ttl)
        self.closed = False
        self.source: tuple[Callable[..., Any], str] | None = None
        self._last_holders = LastHolders()
        self.listeners: Listeners = {}
        events.add_heard(self)
        self.look_at_log = 0.0

    def start_afresh(self) -> None:
        """Begin with nothing held; also in a forked child."""
        self.enter_now, self.leave_now = self.store.enter_now, self.store.leave_now
        self.entering: dict[str, Entering] = {}
        self.leaving: dict[str, tuple[Any, Claim]] = {}
        self.holds: Holds[Any] = Holds()

    @property
    def where(self) -> str:
        """The store, for messages; without passwords."""
        return type(self.store).__name__ if self.source is None else masked(self.source[1])

    def __repr__(self) -> str:
        namespace = f", namespace={self.namespace!r}" if self.namespace else ""
        return f"<{self._kind} on {self.where}{namespace}>"

    def listen_for_log(self, now: float) -> None:
        """Let the log be a listener while its logger is enabled for details."""
        self.look_at_log = now + LOG_LOOK
        if log.debugs():
            self.listeners[events.write] = None
        else:
            self.listeners.pop(events.write, None)

    @property
    def heard(self) -> bool:
        """True if anybody listens; the paths that must be fast look at the listeners themselves."""
        return bool(self.listeners)

    def tell(
        self,
        kind: Kind,
        claim: Claim,
        *,
        fence: int | None = None,
        started: float | None = None,
        held: float | None = None,
        reason: str = "",
    ) -> None:
        """Tell whoever listens.

        Args:
            kind, fence, held, reason: as the attributes of `Event`.
            claim: whose event it is.
            started: when its acquire was called.
        """
        if self.heard:
            waited = None if started is None else monotonic() - started
            spec = claim.spec
            event = Event(kind, name_of(spec.key), claim.id, fence, spec.label, waited, held, reason)
            events.tell(self.listeners, event)

    def queued(self, call: AcquireCall) -> None:
        """Tell that the claim of `call` waits in line."""
        self.left_line(call)
        call.queued = call.claim
        self.tell("queued", call.claim, started=call.started)

    def left_line(self, call: AcquireCall) -> None:
        """Tell that a claim which waited is gone, if `call` goes on with another."""
        if call.queued is not None and call.queued.id != call.claim.id:
            claim, call.queued = call.queued, None
            self.tell("withdrawn", claim, started=call.started, reason=GONE_FROM_LINE)

    def broken_off(self, call: AcquireCall | None, grant: Any, error: BaseException) -> None:
        """Tell how a broken-off call of acquire ended, if anybody was told that it began."""
        if grant is not None and grant._acquired_at is not None:
            grant._tell("released", str(error))
        elif call is not None and call.queued is not None:
            self.tell("withdrawn", call.queued, started=call.started, reason=f"{type(error).__name__}: {error}")

    def evict(self, key: str, id: str | None) -> Op[int]:
        """Remove a claim, or all; listeners are told of what was there just before."""
        store = self.ready()
        seen: Sequence[ClaimView] = ()
        if self.heard:
            try:
                seen = yield from store.look(key)
            except LockError:
                pass  # what it can't look at it may evict all the same
        removed = yield from store.evict(key, id)
        known = [view for view in seen if id is None or view.id == id][:removed]
        if removed and not known and id is not None:
            self.tell("evicted", Claim(id, LockSpec(key)))
        for view in known:
            spec = LockSpec(key, view.units, view.capacity, label=view.label)
            self.tell("evicted", Claim(view.id, spec), fence=view.fence)
        return removed

    def connect_again(self) -> tuple[Any, ...]:
        """Return what connects in another process, and with which arguments.

        Raises:
            InvalidArgument: nothing does.
        """
        if self.source is None or self.source[1].startswith("memory:"):
            why = "its locks are this process's own" if self.source else "it was not made from a URL"
            raise InvalidArgument(
                f"{self!r} can't be sent to another process: {why}; connect by the URL of a store that both reach, "
                f"or connect anew over there"
            )
        connect, url = self.source
        return connect, (url, self.namespace, self.ttl)

    def __reduce__(self) -> tuple[Any, ...]:
        return _session_of, self.connect_again()

    def ready(self) -> S:
        """Return the store.

        Raises:
            StoreError: the connection was closed.
        """
        if self.closed:
            raise StoreError("this connection was closed: connect again")
        return self.store

    def holders_of(self, key: str) -> Op[Sequence[ClaimView]]:
        """Return who holds the lock `key`, as far as it can be found out."""
        return self._last_holders.of(self.store, key)


def _session_of(connect: Callable[..., Any], arguments: tuple[Any, ...]) -> BaseSession[Any]:
    """Connect as another process did."""
    session: BaseSession[Any] = connect(*arguments)._session
    return session
