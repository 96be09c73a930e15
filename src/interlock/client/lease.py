"""The lease of a grant: its state, and the methods by which the watchdog and the client report events to it."""

import math
from contextvars import copy_context
from typing import Any

from interlock.client.arguments import DEFAULT_OPTIONS, AcquireOptions
from interlock.client.base_client import BaseClient
from interlock.client.events import EventKind
from interlock.client.messages import AT_MOST, LEASE_ENDED
from interlock.core import renewal
from interlock.core.claims import name_of
from interlock.core.errors import LockLost
from interlock.core.queue import Held
from interlock.core.renewal import LEFT_AT_RENEWAL
from interlock.runtime import log
from interlock.runtime.process import checked_pid

HELD, RELEASED, LOST = "held", "released", "lost"


class Lease:
    """The state of a held claim: held until its lease expires, it is released, or the store loses it.

    Attributes:
        id: the claim's id.
        fence: the fencing token, strictly increasing per name; pass it to the resource that you protect.
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

    def _undo(self) -> None:
        """End the grant of an interrupted acquire, whose claim the client withdraws."""
        self._watchdog.watched.pop(self.id, None)
        self._state = RELEASED

    def _renewed(self, sent: float) -> float:
        """Note a renewal that was sent at `sent` and answered; return the time of the next one."""
        ttl = self._claim.spec.ttl
        self._deadline = min(max(self._deadline, sent + ttl), self._ends_at)
        renews = self._renews and self._deadline < self._ends_at
        self._due = renewal.due(self._deadline, ttl) if renews else self._deadline
        return self._due

    def _asks_now(self) -> float:
        """Be due immediately, since the store may no longer have the claim; return the time."""
        self._due = 0.0
        return self._due

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
