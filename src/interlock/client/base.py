"""What the clients of threads and tasks share: arguments, the state of a grant, events, the texts of time-outs."""

import math
import threading
import warnings
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Generic, Literal, NamedTuple, NoReturn, ParamSpec, Self, TypeAlias, TypeVar

from interlock.client.events import EVERYWHERE, Event, Kind, Listeners
from interlock.core.claims import (
    MAX_LABEL,
    MAX_NAME,
    SEPARATOR,
    WRITER_UNITS,
    Claim,
    ClaimView,
    LockSpec,
    Unset,
    checked_at_least,
    checked_at_most,
    checked_flag,
    checked_name,
    checked_text,
    checked_timeout,
    checked_ttl,
    fits,
    name_of,
    said,
)
from interlock.core.errors import InvalidArgument, LockLost, LockTimeout, NotHeld, StoreError, Unsupported
from interlock.core.line import LARGEST_SLOTS, numbered
from interlock.core.queue import AcquireCall, Feature, Held
from interlock.core.redaction import masked
from interlock.runtime import log
from interlock.runtime.process import checked_pid
from interlock.storekit.store import Store

L = TypeVar("L")
P = ParamSpec("P")
G = TypeVar("G", bound="BaseGrant", covariant=True)
HELD, RELEASED, LOST = "held", "released", "lost"
GONE_THERE = "the store no longer has its claim: it expired there or was evicted"
LEASE_ENDED = "its lease ended before it was renewed"
CONNECTION_CLOSED = "its connection was closed, or its event loop ended, and the claim ended with the connection"
AT_MOST = "it was held for as long as its at_most says"
GONE_FROM_LINE = "its claim was gone, it expired or was evicted; another one lines up in its place"
TRY_LIMIT = 1.0  # seconds that one try may take when the store itself is busy
FEW = 16
ONE_OF = " one of "
LONGEST_ITEMS = 80  # characters of a label
OnBusy: TypeAlias = Literal["wait", "raise", "skip"]
"""What a guarded function does while another caller holds its lock."""


# -- arguments -------------------------------------------------------------------------------------------------------


class AcquireOptions(NamedTuple):
    """How a lock object acquires, and keeps what it has.

    Attributes:
        timeout: seconds to wait at most unless `acquire` says otherwise; None for no limit.
        renew: whether the lease is renewed.
        on_lost: called with the grant when it is lost.
        at_least: seconds that the claim stays at least, from the moment when it holds the lock.
        at_most: seconds after which it is lost, in spite of renewals; infinite for no limit.
        on_wanted: called with the grant when another claim begins to wait.
        items: the items that the slots mean, in their order.
    """

    timeout: float | None = None
    renew: bool = True
    on_lost: Callable[[Any], object] | None = None
    at_least: float = 0.0
    at_most: float = math.inf
    on_wanted: Callable[[Any], object] | None = None
    items: tuple[str, ...] = ()


_DEFAULTS = AcquireOptions()


def seconds_of(on_busy: object, timeout: float | None) -> float | None:
    """Return how many seconds to wait for a busy lock; 0, for one try, unless `on_busy` is "wait".

    Raises:
        InvalidArgument: `on_busy` is none of the three.
    """
    if on_busy not in ("wait", "raise", "skip"):
        raise InvalidArgument(f"on_busy is 'wait', 'raise' or 'skip', not {said(on_busy)}")
    return 0 if timeout is None and on_busy != "wait" else timeout


def checked_items(items: Sequence[str]) -> tuple[str, ...]:
    """Return the items that the slots mean, sorted, else raise InvalidArgument."""
    listed = () if isinstance(items, str) else tuple(items)
    if not 1 <= len(set(listed)) == len(listed) <= LARGEST_SLOTS or not all(isinstance(each, str) for each in listed):
        raise InvalidArgument(f"items are 1 to {LARGEST_SLOTS} different texts in a list, not {said(items)}")
    return tuple(sorted(listed))


def label_of_items(items: tuple[str, ...], label: str | None) -> str:
    """Return the label of a claim to one of several items; other claims compare their items with it."""
    text = ", ".join(items)
    if len(text) > LONGEST_ITEMS:
        from hashlib import sha256  # it loads OpenSSL

        digest = sha256("\0".join(items).encode()).hexdigest()[:16]
        text = f"{text[:LONGEST_ITEMS]}… ({len(items)}, {digest})"
    return f"{label or ''}{ONE_OF}{text}".lstrip()


def refuse_other_items(label: str, views: Sequence[ClaimView], fence: int | None) -> None:
    """Raise InvalidArgument if a claim in the line has other items; with a fence, only if it is before that fence."""
    mine = label.rpartition(ONE_OF.lstrip())[2]
    for view in views:
        _, marked, theirs = view.label.rpartition(ONE_OF.lstrip())
        if marked and theirs != mine and (fence is None or (view.fence or fence) < fence):
            raise InvalidArgument(
                f"the items of {view.name!r} are [{theirs}] for other claims, and [{mine}] here: use one list for all"
            )


def wait_limit(options: AcquireOptions, blocking: bool, timeout: float | None | Unset) -> float | None:
    """Return how many seconds an acquire may wait: 0 for one try, None for no limit."""
    if isinstance(timeout, Unset):
        return options.timeout if blocking is True or checked_timeout(blocking, None) is None else 0.0
    return checked_timeout(blocking, timeout)


def time_is_over(
    name: str, seconds: float | None, holders: Sequence[ClaimView] | None = None, mine: bool = False
) -> LockTimeout:
    """Return the error for a lock that was not obtained in time.

    Args:
        name: of the lock.
        seconds: that were allowed.
        holders: the claims that hold it; None if the store could not be asked.
        mine: True if one of them is the caller's.
    """
    who = "another caller holds it"
    advice = "find the holder with `interlock show`"
    if seconds:
        advice = f"wait longer (timeout=), or {advice}"
    if holders:
        who = " and ".join(_who(each) for each in holders[:2])
        who += (f" and {len(holders) - 2} more" if len(holders) > 2 else "") + " holds it"
        advice = "wait longer (timeout=)" if seconds else "wait for it (timeout=), or come back later"
    elif holders is not None:
        who = "it has no holder at this moment"
        advice = (
            "it is being handed over, other waiters are before the caller, or the server was restarted and grants no "
            "lock during its grace: see `interlock doctor`, and `interlock ls` for the waiters"
        )
    if mine:
        who = "the caller itself holds it"
        advice = "release it first"
        if all(each.capacity == 1 for each in holders or ()):
            advice += ", or use rlock(), which its holder may acquire again"
    return LockTimeout(
        f"the lock {name!r} was not obtained within {seconds or 0:g} s: {who}; {advice}",
        name=name,
        timeout=seconds,
        holders=holders or (),
    )


def _who(view: ClaimView) -> str:
    label = f" {view.label!r}" if view.label else ""
    return f"{view.thread}{label} of process {view.pid} on {view.host}"


def closed_meanwhile(spec: LockSpec) -> StoreError:
    """Return the error for an acquire whose connection was closed meanwhile."""
    return StoreError(f"the connection was closed while {name_of(spec.key)!r} was acquired: connect again")


# -- what a connection knows -----------------------------------------------------------------------------------------


class BaseClient:
    """A store, and how a program is connected to it.

    Args:
        store: where the claims are kept.
        namespace: separates applications that share a store.
        ttl: seconds of lease of its locks, unless they say otherwise.

    Attributes:
        source: what connects another process, `connect` or `aconnect`, and the URL; None if it was made from
            something else.
        closed: True from the beginning of `close()`.
        listeners: the functions that get the events of this connection.
        now: the clock that its leases are counted on, in seconds.
    """

    def __init__(self, store: Store, namespace: str, ttl: float) -> None:
        self.store = store
        self.namespace = checked_text(namespace, "namespace", MAX_NAME)
        self.ttl = checked_ttl(ttl)
        self.closed = False
        self.source: tuple[Callable[..., Any], Callable[..., Any], str] | None = None
        self.now = store.now
        self.listeners: Listeners = {}

    @property
    def where(self) -> str:
        """The store, for messages; without passwords."""
        return type(self.store).__name__ if self.source is None else masked(self.source[2])

    def check_open(self) -> None:
        """Raise StoreError if the connection was closed."""
        if self.closed:
            raise StoreError("this connection was closed: connect again")

    def key(self, name: str) -> str:
        """Return the key of a name."""
        return self.namespace + SEPARATOR + checked_name(name)

    def spec(
        self, name: str, units: int, capacity: int, ttl: float | None, label: str | None, at_least: float = 0.0
    ) -> LockSpec:
        """Return what a lock object asks for, after its arguments were judged."""
        lease = None if ttl is None else checked_ttl(ttl)
        kept = checked_at_least(at_least, lease)
        if capacity > 1:
            self.need("readers" if capacity == WRITER_UNITS else "semaphores")
        return LockSpec(
            self.namespace + SEPARATOR + checked_name(name),
            units,
            capacity,
            max(self.ttl, kept) if lease is None else lease,
            "" if label is None else checked_text(label, "label", MAX_LABEL),
        )

    def options(
        self,
        timeout: float | None = None,
        renew: bool = True,
        on_lost: Callable[[G], object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[[G], object] | None = None,
    ) -> AcquireOptions:
        """Check the arguments that say how to acquire; `at_least` was checked with the ttl."""
        if (
            timeout is None
            and renew is True
            and on_lost is None
            and not at_least
            and at_most is None
            and on_wanted is None
        ):
            return _DEFAULTS
        if on_wanted is not None:
            self.need("wanted")
        for name, function in (("on_lost", on_lost), ("on_wanted", on_wanted)):
            if function is not None and not callable(function):
                raise InvalidArgument(f"{name} is a function of one argument, the grant, not {said(function)}")
        checked_flag(renew, "renew")
        most = math.inf if at_most is None else checked_at_most(at_most, at_least)
        return AcquireOptions(checked_timeout(True, timeout), renew, on_lost, at_least, most, on_wanted)

    def refuse_own_wait(
        self, spec: LockSpec, owner: object, seconds: float | None, grants: Sequence["BaseGrant"]
    ) -> None:
        """Refuse that an event loop waits for its own thread, which can't release meanwhile.

        Args:
            spec: of the lock that is waited for.
            owner: the calling thread, in which a loop runs.
            seconds: for which it waits; None for no limit.
            grants: what this process holds.

        Raises:
            InvalidArgument: it would wait for ever.
        """
        own = [each._claim.spec for each in grants if each._owner is owner and each.held]
        if fits(spec.units, spec.capacity, [(each.units, each.capacity) for each in own if each.key == spec.key]):
            return
        text = (
            f"the thread of this event loop holds {name_of(spec.key)!r} and waits for it, so that no task can "
            f"release it: a lock around an `await` is one of aconnect(), with `async with`"
        )
        if seconds is None:
            raise InvalidArgument(text)
        log.warn("%s", text)

    def need(self, feature: Feature) -> None:
        """Raise Unsupported if the store lacks a feature."""
        if feature not in self.store.features:
            raise Unsupported(
                f"{self.where} has no {feature}: use a store that has, as postgresql://, redis:// or file://"
            )

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
        """Send an event to each listener, also if another one raises.

        Args:
            kind, fence, held, reason: as the attributes of `Event`.
            claim: the claim of the event.
            started: when its acquire was called.
        """
        if self.listeners or EVERYWHERE:
            waited = None if started is None else self.now() - started
            spec = claim.spec
            event = Event(kind, name_of(spec.key), claim.id, fence, spec.label, waited, held, reason)
            for listener in [*self.listeners.values(), *EVERYWHERE.values()]:
                try:
                    listener(event)
                except Exception:
                    log.exception("a listener failed at %s", event)

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

    def broken_off(self, call: AcquireCall | None, grant: "BaseGrant | None", error: BaseException) -> None:
        """Tell the listeners how a broken-off acquire ended, if they were told that it began."""
        if grant is not None and grant._acquired_at is not None:
            grant._tell("released", str(error))
        elif call is not None and call.queued is not None:
            self.tell("withdrawn", call.queued, started=call.started, reason=f"{type(error).__name__}: {error}")

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is None or self.source[2].startswith("memory:"):
            why = "its locks are this process's own" if self.source else "it was not made from a URL"
            raise InvalidArgument(
                f"a connection to {self.where} can't be sent to another process: {why}; connect by the URL of a "
                f"store that both reach, or connect again in that process"
            )
        again, connect, url = self.source
        return again, (connect, url, self.namespace, self.ttl)


class Same:
    """What it is copied to is the same thing: a lock is what its name says."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class ReadWrite(Generic[L]):
    """A reader/writer lock, in first come, first served order: no writer starves, no reader barges."""

    def __init__(self, reader: L, writer: L) -> None:
        self._reader = reader
        self._writer = writer

    def read(self) -> L:
        """Return the lock that readers share."""
        return self._reader

    def write(self) -> L:
        """Return the lock that one writer has for itself."""
        return self._writer

    def __repr__(self) -> str:
        return f"<ReadWrite of {self._reader!r}>"


# -- grants ----------------------------------------------------------------------------------------------------------


def warn_of_dropped(claim: Claim) -> None:
    """Warn that the grant of a claim was collected while it was held; tracemalloc knows where a claim was made."""
    name = name_of(claim.spec.key)
    message = (
        f"the lock {name!r} was never released: its grant and its lock object were collected while "
        "it was held, so its lease is renewed no more and ends; use `with`, or keep the grant and call release()"
    )
    log.warn("%s", message)  # most programs show no ResourceWarning, and a second copy may run when the lease is over
    warnings.warn(message, ResourceWarning, stacklevel=3, source=claim)


class BaseGrant:
    """A held claim and its lease; the fence and the id never change.

    Attributes:
        id: the claim's id.
        fence: the fencing token, strictly increasing per name; give it to the resource that you protect.
    """

    __slots__ = (
        "__weakref__",
        "_acquired_at",
        "_body",
        "_claim",
        "_client",
        "_context",
        "_deadline",
        "_due",
        "_ends_at",
        "_free_at",
        "_leaving",
        "_lost_because",
        "_options",
        "_owner",
        "_record",
        "_renews",
        "_slot",
        "_state",
        "_wanted",
        "_watchdog",
        "fence",
        "id",
    )  # fmt: skip

    def __init__(self, held: Held, client: BaseClient, watchdog: Any, owner: object, options: AcquireOptions) -> None:
        claim, self.fence, deadline, self._slot = held
        self._claim = claim
        self._client: Any = client
        self._watchdog = watchdog
        self._owner: Any = owner
        self.id = claim.id
        self._deadline = deadline
        self._renews = options.renew
        self._due = deadline - claim.spec.ttl * (2 / 3) if options.renew else deadline
        self._options = options
        if options is not _DEFAULTS and (options.on_lost is not None or options.on_wanted is not None):
            self._context = copy_context()  # for the callbacks
        self._wanted = False
        self._ends_at = math.inf
        if options.at_most < math.inf:
            self._ends_at = client.now() + options.at_most
            self._renewed(deadline - claim.spec.ttl)
        self._free_at = 0.0
        self._state = HELD
        self._leaving = False
        self._lost_because = ""
        self._record: tuple[float, str] | tuple[()] = ()
        self._body: Any = None
        self._acquired_at: float | None = None

    @property
    def name(self) -> str:
        """The lock's name."""
        return name_of(self._claim.spec.key)

    @property
    def slot(self) -> int:
        """The lowest number, from 0, that no other holder of the semaphore has; 0 for an exclusive lock.

        Raises:
            Unsupported: the store has no slots, or this lock: more than one unit, more than 1,024 permits, a reader.
        """
        spec = self._claim.spec
        if spec.capacity == 1:
            return 0
        self._client.need("slot")
        if not numbered(spec.units, spec.capacity):
            raise Unsupported("only holders of one unit of a semaphore of at most 1,024 permits have slots")
        return self._slot

    @property
    def item(self) -> str:
        """The item of this slot; of a lock of `one_of` only.

        Raises:
            Unsupported: it is another kind of lock.
        """
        if not self._options.items:
            raise Unsupported("only a grant of locks.one_of(name, items) has an item")
        return self._options.items[self._slot]

    @property
    def wanted(self) -> bool:
        """True if another claim waited for the lock when its lease was last renewed.

        Raises:
            Unsupported: the store can't tell.
        """
        self._client.need("wanted")
        return self._wanted

    @property
    def expires_in(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0 when it is over."""
        if self.lost or self._over:
            return 0.0
        return max(0.0, float(self._deadline - self._client.now()))

    @property
    def held(self) -> bool:
        """True while it is neither released nor lost; False from the moment when its release begins."""
        return not self.lost and self._state == HELD and not self._leaving

    @property
    def lost(self) -> bool:
        """True once the lease ended or the claim was evicted before it was released."""
        if self._watchdog.pid != checked_pid():
            return True
        if self._state == HELD and self._client.now() >= self._deadline:
            self._lose(LEASE_ENDED)
        return self._state == LOST

    @property
    def inherited(self) -> bool:
        """True in a forked child, which owns nothing of its parent's grants."""
        return bool(self._watchdog.pid != checked_pid())

    @property
    def _over(self) -> bool:
        """True once its outcome is known to the caller: it was released, or lost and its release was called."""
        return self._state == RELEASED or (self._state == LOST and self._leaving)

    def check(self) -> None:
        """Raise unless the lock is held now; call it before what must not be done twice.

        Raises:
            LockLost: the lease ended, or the claim was evicted, or this is a forked child.
            NotHeld: the grant was released.
        """
        if self.lost:
            raise self._loss()
        if not self.held:
            raise NotHeld(f"the lock {self.name!r} was released, or its release has begun; acquire it again")

    def _stay_at_least(self) -> None:
        """Let a release before the end of its `at_least`, from now, keep the claim until then."""
        self._free_at = self._client.now() + self._options.at_least

    def _loss(self) -> LockLost:
        why = "a forked child owns nothing of its parent's grants" if self.inherited else self._lost_because
        return LockLost(
            f"the lock {self.name!r} (fence {self.fence}) was lost: {why}; stop the work, or give the resource the "
            f"fence so that it can refuse it"
        )

    def _lose(self, why: str) -> None:
        """Mark it lost, unless it was released or lost before."""
        if self._state == HELD:
            self._watchdog.let_go(self.id)
            self._lost_because = AT_MOST if why is LEASE_ENDED and self._deadline >= self._ends_at else why
            # A release whose reply did not come may have been done: a claim that is gone then is no loss.
            self._state = RELEASED if self._leaving else LOST
            if self._state == LOST:
                log.warn("the lock %r (fence %d) was lost: %s", self.name, self.fence, self._lost_because)

    def _tell_acquired(self, started: float) -> None:
        """Tell the listeners that it is held now."""
        self._acquired_at = self._client.now()
        self._client.tell("acquired", self._claim, fence=self.fence, started=started)

    def _tell(self, kind: Kind, reason: str = "") -> None:
        """Tell the listeners what happened to it."""
        since = self._acquired_at
        held = None if since is None else self._client.now() - since
        self._client.tell(kind, self._claim, fence=self.fence, held=held, reason=reason)

    def _tell_end(self) -> None:
        """Tell that its release found it lost, or gone at the end of a lease that an earlier release had left.

        Another release that took it out at the same time has told that.
        """
        if self._lost_because:
            self._tell("lost" if self._state == LOST else "released", self._lost_because)

    def _renewed(self, sent: float) -> None:
        """Note a renewal that was sent at `sent` and answered."""
        ttl = self._claim.spec.ttl
        self._deadline = min(max(self._deadline, sent + ttl), self._ends_at)
        renews = self._renews and self._deadline < self._ends_at
        self._due = self._deadline - ttl * (2 / 3) if renews else self._deadline

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            f"the grant of {self.name!r} belongs to the process that acquired it: send the lock, or the fence"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self._state} fence={self.fence} id={self.id}>"


class Hold:
    """How many handles there are on one hold of a re-entrant lock."""

    __slots__ = ("_mutex", "_number")

    def __init__(self) -> None:
        self._number = 1
        self._mutex = threading.RLock()

    def add(self) -> bool:
        """Count one more handle; False if the last one is being released meanwhile, perhaps by another thread."""
        with self._mutex:
            self._number += self._number > 0
            return self._number > 0

    def drop(self) -> bool:
        """Count one less; True, also when called again, if no other is left and the hold is to be released."""
        with self._mutex:
            self._number -= self._number > 0
            return self._number == 0


class BaseGrants(tuple[G, ...]):
    """Several grants that were taken together, as a sequence in the order in which they were taken."""

    @property
    def _body(self) -> Any:
        return next((grant._body for grant in self if grant._body is not None), None)

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name."""
        return {grant.name: grant.fence for grant in self}

    @property
    def _over(self) -> bool:
        return all(grant._over for grant in self)

    @property
    def held(self) -> bool:
        """True while all of them are held."""
        return all(grant.held for grant in self)

    @property
    def lost(self) -> bool:
        """True once any of them is lost."""
        return any(grant.lost for grant in self)

    @property
    def inherited(self) -> bool:
        """True in a forked child, which owns nothing of its parent's grants."""
        return any(grant.inherited for grant in self)

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all of them are held now."""
        for grant in self:
            grant.check()

    def _loss(self) -> LockLost:
        return next(grant for grant in self if grant.lost)._loss()
