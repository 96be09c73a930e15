"""The common part of the grants of threads and of tasks."""

import math
import threading
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any, NoReturn, TypeVar

from interlock.client.arguments import DEFAULT_OPTIONS, AcquireOptions
from interlock.client.base_client import BaseClient
from interlock.client.events import EventKind
from interlock.client.messages import AT_MOST, LEASE_ENDED
from interlock.core import renewal
from interlock.core.claims import LockSpec, fits, name_of
from interlock.core.errors import InvalidArgument, LockLost, NotHeld, Unsupported
from interlock.core.line import has_slots
from interlock.core.queue import AcquireCall, Held, Wakeable
from interlock.core.renewal import LEFT_AT_RENEWAL
from interlock.runtime import log
from interlock.runtime.process import checked_pid

G = TypeVar("G", bound="BaseGrant", covariant=True)
HELD, RELEASED, LOST = "held", "released", "lost"


class BaseGrant:
    """A held claim and its lease; the fence and the id never change.

    Attributes:
        id: the claim's id.
        fence: the fencing token, strictly increasing per name; pass it to the resource that you protect.
    """

    __slots__ = (
        "__weakref__", "_acquired_at", "_body", "_claim", "_client", "_context", "_deadline", "_due", "_ends_at",
        "_free_at", "_leaving", "_lost_because", "_options", "_owner", "_record", "_renews", "_slot", "_state",
        "_wanted", "_watchdog", "fence", "id",
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
        self._due = deadline - claim.spec.ttl * LEFT_AT_RENEWAL if options.renew else deadline
        self._options = options
        if options is not DEFAULT_OPTIONS and (options.on_lost is not None or options.on_wanted is not None):
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
        """The holder's lowest free number, from 0; 0 for an exclusive lock.

        Raises:
            Unsupported: the store has no slots, or the lock has none: more than 1 unit, more than 1,024 permits, a
                reader.
        """
        spec = self._claim.spec
        if spec.capacity == 1:
            return 0
        self._client.need("slot")
        if not has_slots(spec.units, spec.capacity):
            raise Unsupported("Only holders of one unit of a semaphore of at most 1,024 permits have slots.")
        return self._slot

    @property
    def item(self) -> str:
        """The item of this grant, from a lock of `one_of`.

        Raises:
            Unsupported: it is another kind of lock.
        """
        if not self._options.items:
            raise Unsupported("Only a grant of locks.one_of(name, items) has an item.")
        return self._options.items[self._slot]

    @property
    def wanted(self) -> bool:
        """True if another claim was waiting for the lock at the last renewal.

        Raises:
            Unsupported: the store does not support `wanted`.
        """
        self._client.need("wanted")
        return self._wanted

    @property
    def expires_in(self) -> float:
        """Seconds until the lease expires unless it is renewed; 0 after that."""
        if self.lost or self._over:
            return 0.0
        return max(0.0, float(self._deadline - self._client.now()))

    @property
    def held(self) -> bool:
        """True until it is released or lost; False from the start of its release."""
        return not self.lost and self._state == HELD and not self._leaving

    @property
    def lost(self) -> bool:
        """True after the lease expired or the claim was evicted before a release."""
        if self._watchdog.pid != checked_pid():
            return True
        if self._state == HELD and self._client.now() >= self._deadline:
            self._lose(LEASE_ENDED)
        return self._state == LOST

    @property
    def inherited(self) -> bool:
        """True in a forked child, which does not own its parent's grants."""
        return bool(self._watchdog.pid != checked_pid())

    @property
    def _over(self) -> bool:
        """True if the caller knows the outcome: released, or lost and then released."""
        return self._state == RELEASED or (self._state == LOST and self._leaving)

    def check(self) -> None:
        """Raise unless the lock is held now; call it before work that must run only once.

        Raises:
            LockLost: the lease expired, or the claim was evicted, or this is a forked child.
            NotHeld: the grant was released.
        """
        if self.lost:
            raise self._loss()
        if not self.held:
            raise NotHeld(f"Lock {self.name!r} has already been released (or is being released). Acquire it again.")

    def _stay_at_least(self) -> None:
        """Keep the claim for `at_least` from now, even if it is released before."""
        self._free_at = self._client.now() + self._options.at_least

    def _loss(self) -> LockLost:
        why = "a forked child does not own its parent's grants" if self.inherited else self._lost_because
        return LockLost(
            f"Lock {self.name!r} (fence {self.fence}) was lost because {why}. Stop the work, or pass the fence to "
            f"the resource so that it can reject late writes."
        )

    def _lose(self, why: str) -> None:
        """Mark the grant as lost, unless it was released or lost before."""
        if self._state == HELD:
            self._watchdog.let_go(self.id)
            self._lost_because = AT_MOST if why is LEASE_ENDED and self._deadline >= self._ends_at else why
            # A release without a reply may have been performed: a missing claim is then no loss.
            self._state = RELEASED if self._leaving else LOST
            if self._state == LOST:
                log.warn("Lock %r (fence %d) was lost because %s.", self.name, self.fence, self._lost_because)

    def _emit_acquired(self, started: float) -> None:
        """Notify the listeners that the lock is held."""
        self._acquired_at = self._client.now()
        self._client.emit("acquired", self._claim, fence=self.fence, started=started)

    def _emit(self, kind: EventKind, reason: str = "") -> None:
        """Notify the listeners of an event of this grant."""
        since = self._acquired_at
        held = None if since is None else self._client.now() - since
        self._client.emit(kind, self._claim, fence=self.fence, held=held, reason=reason)

    def _tell_end(self) -> None:
        """Report that the release found the claim lost, or gone after an earlier release.

        If another release removed the claim at the same time, that release has reported it.
        """
        if self._lost_because:
            self._emit("lost" if self._state == LOST else "released", self._lost_because)

    def _renewed(self, sent: float) -> None:
        """Note a renewal that was sent at `sent` and answered."""
        ttl = self._claim.spec.ttl
        self._deadline = min(max(self._deadline, sent + ttl), self._ends_at)
        renews = self._renews and self._deadline < self._ends_at
        self._due = renewal.due(self._deadline, ttl) if renews else self._deadline

    def _asks_now(self) -> None:
        """Be due immediately: the store may no longer have the claim."""
        self._due = 0.0

    def _joins(self, now: float) -> bool:
        """Return True if the renewal is due, or due soon, and note that it is sent."""
        ttl = self._claim.spec.ttl
        joins = self._due < self._deadline and self._due <= now + ttl * renewal.JOIN_WITHIN
        if joins:
            self._due = renewal.asked_again(now, ttl, self._deadline)
        return joins

    def _retries(self, now: float) -> float:
        """Note that the renewal failed; return the time of the retry."""
        self._due = renewal.retried(now, self._claim.spec.ttl, self._deadline)
        return self._due

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            f"The grant of {self.name!r} belongs to the process that acquired it. Send the lock, or the fence."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self._state} fence={self.fence} id={self.id}>"


def refuse_own_wait(spec: LockSpec, owner: object, seconds: float | None, grants: Sequence[BaseGrant]) -> None:
    """Refuse a wait of an event loop for its own thread, which could never release.

    Args:
        spec: the parameters of the lock.
        owner: the calling thread, in which a loop runs.
        seconds: the maximum wait; None for no limit.
        grants: the grants of this process.

    Raises:
        InvalidArgument: the wait would never end.
    """
    own = [each._claim.spec for each in grants if each._owner is owner and each.held]
    if fits(spec.units, spec.capacity, [(each.units, each.capacity) for each in own if each.key == spec.key]):
        return
    text = (
        f"The thread of this event loop holds {name_of(spec.key)!r} and waits for it, so no task can release it. "
        f"Around an `await`, use a lock of aconnect() with `async with`."
    )
    if seconds is None:
        raise InvalidArgument(text)
    log.warn("%s", text)


def broken_off(
    client: BaseClient, call: AcquireCall[Wakeable] | None, grant: BaseGrant | None, error: BaseException
) -> None:
    """Report the end of an interrupted acquire, if its start was reported."""
    if grant is not None and grant._acquired_at is not None:
        grant._emit("released", str(error))
    elif call is not None and call.queued is not None:
        client.emit("withdrawn", call.queued, started=call.started, reason=f"{type(error).__name__}: {error}")


class ReentryCount:
    """The number of handles on one hold of a re-entrant lock."""

    __slots__ = ("_mutex", "_number")

    def __init__(self) -> None:
        self._number = 1
        self._mutex = threading.RLock()

    def add(self) -> bool:
        """Count one more handle; return False if the last one is being released."""
        with self._mutex:
            self._number += self._number > 0
            return self._number > 0

    def drop(self) -> bool:
        """Count one handle less; return True, even if repeated, when none remain."""
        with self._mutex:
            self._number -= self._number > 0
            return self._number == 0


class BaseGrants(tuple[G, ...]):
    """Several grants that were acquired together, in the order of acquisition."""

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
        """True while all grants are held."""
        return all(grant.held for grant in self)

    @property
    def lost(self) -> bool:
        """True if any grant is lost."""
        return any(grant.lost for grant in self)

    @property
    def inherited(self) -> bool:
        """True in a forked child, which does not own its parent's grants."""
        return any(grant.inherited for grant in self)

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all grants are held now."""
        for grant in self:
            grant.check()

    def _loss(self) -> LockLost:
        return next(grant for grant in self if grant.lost)._loss()
