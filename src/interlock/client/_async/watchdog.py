"""Renewal of leases: an alarm reports losses in time; its tasks ask the store.

No request delays a deadline: a loss is reported even while a renewal waits for its reply.  One request renews many
claims.  A failed renewal is retried until the deadline; only then is the grant lost.
"""

import math
import sys
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from weakref import ref

from interlock.client._async.grants import AsyncGrant
from interlock.client.base_client import BaseClient
from interlock.client.events import GLOBAL_LISTENERS, EventKind
from interlock.client.messages import CONNECTION_CLOSED, EXPIRED_OR_EVICTED, LEASE_ENDED, warn_of_dropped
from interlock.core._async.protocols import AsyncQueue
from interlock.core.claims import Claim, name_of
from interlock.core.errors import LockError, StoreError
from interlock.core.line import RENEWAL_WANTED
from interlock.core.queue import Renewed
from interlock.runtime import _aio as rt
from interlock.runtime import log
from interlock.runtime.process import checked_pid

RENEWALS_PER_REQUEST = 100  # leases in one request
MOST_DOUBTED = 256
MOST_DROPPED = 64
MOST_STALE = 256
TAKE_OUT_PAUSE = 0.25  # seconds between two attempts to withdraw stale claims


class AsyncWatchdog:
    """The grants of one connection in one process or event loop.

    It references grants weakly: a collected grant can be neither used nor released, so its lease is not renewed.

    Args:
        client: the connection.
        queue: the store's queue in this process or loop.

    Attributes:
        let_go: reports to the queue that a claim was lost or its grant was garbage-collected.
        node_of: returns the node of a claim, so that an unavailable node does not delay claims on others.
        watched: each grant with its claim, by id, for the warning when the grant is collected.
        pid: the id of its process.
        dropped: the latest claims whose grants were collected, with the latest ends of their leases.
        stale: claims that may be in the line after their callers gave up, with the latest ends of their leases; a
            background task withdraws them.
    """

    def __init__(self, client: BaseClient, queue: AsyncQueue) -> None:
        self._client = client
        self._queue = queue
        self._now = client.now
        self.node_of = queue.node_of
        self.let_go = queue.let_go
        self.pid = checked_pid()
        self.watched: dict[str, tuple[ref[AsyncGrant], Claim]] = {}
        self._staying: dict[str, tuple[Claim, float]] = {}
        self._unverified: deque[str] = deque(maxlen=MOST_DOUBTED)
        self.dropped: deque[tuple[Claim, float]] = deque(maxlen=MOST_DROPPED)
        self.stale: deque[tuple[Claim, float]] = deque(maxlen=MOST_STALE)
        self._take_out_at = 0.0
        self._alarm = rt.AsyncAlarm(self._look, "interlock-watchdog", self._now, queue.close_idle)
        queue.watch_doubts(self.verify_soon)

    def add(self, grant: AsyncGrant) -> None:
        """Watch a grant from now on."""
        # A grant whose release failed has raised an error, and needs no warning when it is collected.
        leaving, due = grant._leaving, grant._due
        self.watched[grant.id] = ref(grant) if leaving else ref(grant, self._collected), grant._claim
        if grant.id in self._unverified and not leaving:
            due = grant._asks_now()
        if due < self._alarm.moment:
            self._alarm.set(due)

    def stay(self, claim: Claim, free_at: float) -> None:
        """Keep a claim in the line until `free_at`, the end of its `at_least`."""
        self._staying[claim.id] = claim, free_at
        self.watched.pop(claim.id, None)
        self._alarm.set(free_at)

    def take_out(self, claim: Claim) -> None:
        """Withdraw a claim in the background, until its lease has expired."""
        self.stale.append((claim, self._now() + claim.spec.ttl))
        self._alarm.set(self._take_out_at)

    def verify_soon(self, id: str) -> bool:
        """Verify soon that the store still has a claim, even one that is being granted.

        Args:
            id: of the claim; "" for all held claims.

        Returns:
            True if its grant is watched here.
        """
        for each in [] if id else list(self.watched):
            self.verify_soon(each)
        found = self.watched.get(id)
        grant = None if found is None else found[0]()
        if grant is None:
            self._unverified.append(id)
        else:
            self._alarm.set(grant._asks_now())
        return grant is not None

    def lost(self, grant: AsyncGrant, why: str) -> None:
        """Mark a grant as lost, and notify listeners."""
        if self.watched.pop(grant.id, None) is None:
            return  # the grant is being released: not lost
        grant._lose(why)
        lost = grant.lost  # otherwise its release was on its way
        self._emit([grant], "lost" if lost else "released", why)
        if lost:
            grant._act_on_loss(why)

    def live(self) -> list[AsyncGrant]:
        """Return the watched grants in the order of acquisition."""
        return [grant for grant, _ in self.pairs()]

    def pairs(self) -> list[tuple[AsyncGrant, Claim]]:
        """Return the watched grants with their claims, in the order of acquisition."""
        return [
            (grant, claim) for reference, claim in list(self.watched.values()) if (grant := reference()) is not None
        ]

    def stop(self, frees: bool) -> None:
        """Stop all renewals.

        Args:
            frees: True if the claims end with the connection, which closes next: their grants are lost.
        """
        self._alarm.stop()
        for grant in self.live() if frees else ():
            self.lost(grant, CONNECTION_CLOSED)

    def _collected(self, gone: "ref[AsyncGrant]") -> None:
        """Forget a collected grant without waiting for a store or a mutex."""
        for id, (reference, claim) in list(self.watched.items()):
            if reference is gone and self.watched.pop(id, None) is not None:
                self.let_go(id)
                ends = sys is None or sys.is_finalizing()  # the interpreter, which may have cleared this module
                if not (ends or self._client.closed) and self.pid == checked_pid():
                    self.dropped.append((claim, self._now() + claim.spec.ttl))
                    warn_of_dropped(claim)

    async def _look(self) -> None:
        """Report losses, and start the renewals that are due."""
        now = self._now()
        try:
            for id, (claim, free_at) in list(self._staying.items()):
                if free_at <= now and self._staying.pop(id, None) is not None:
                    self.take_out(claim)
            if self.stale and self._take_out_at <= now:
                self._take_out_at = math.inf  # until this attempt has ended
                if rt.start_background("interlock-take-out", self._take_out) is None:
                    self._take_out_at = now + TAKE_OUT_PAUSE
            due: dict[object, list[AsyncGrant]] = {}
            grants = self.pairs()
            soon = any(grant._due <= now for grant, _ in grants)
            for grant, claim in grants:
                if now >= grant._deadline:
                    self.lost(grant, LEASE_ENDED)
                elif soon and grant._joins(now):
                    due.setdefault(self.node_of(claim), []).append(grant)
            for some in due.values():
                if rt.start_background("interlock-renew", self._renew, some) is None:
                    self._again(some)
        finally:
            self._alarm.set(min([grant._due for grant in self.live()], default=math.inf))
            self._alarm.set(min([free_at for _, free_at in list(self._staying.values())], default=math.inf))
            self._alarm.set(self._take_out_at if self.stale else math.inf)

    async def _take_out(self) -> None:
        """Withdraw the stale claims one by one; a failure ends the attempt."""
        try:
            while self.stale:
                first = self.stale[0]
                claim, until = first
                if self._now() < until:
                    await self._queue.leave(claim)
                if self.stale and self.stale[0] is first:  # a full queue may have dropped the claim
                    self.stale.popleft()
        except LockError:
            self.stale.rotate(-1)  # the next attempt begins with another claim
        finally:
            self._take_out_at = self._now() + TAKE_OUT_PAUSE
            self._alarm.set(self._take_out_at)

    async def _renew(self, grants: list[AsyncGrant]) -> None:
        """Renew the leases of one node, the most urgent first."""
        grants.sort(key=lambda grant: float(grant._deadline))
        for start in range(0, len(grants), RENEWALS_PER_REQUEST):
            some = [
                (grant, found[1])
                for grant in grants[start : start + RENEWALS_PER_REQUEST]
                if (found := self.watched.get(grant.id)) is not None
            ]
            sent = self._now()
            try:
                answers = await self._queue.renew([claim for _, claim in some]) if some else []
            except BaseException as error:
                rest = [grant for grant in grants[start:] if grant.id in self.watched]
                self._failed(rest, error)
                if isinstance(error, rt.CANCELLED):
                    raise
                if not isinstance(error, LockError):
                    log.exception("Unexpected error while renewing leases.")
                return
            self._answered([grant for grant, _ in some], answers, sent)

    def _answered(self, grants: Sequence[AsyncGrant], answers: Sequence[Renewed], sent: float) -> None:
        """Process the answer for each claim; a claim without an answer delays no other."""
        failed: list[AsyncGrant] = []
        renewed: list[AsyncGrant] = []
        problem: BaseException | None = None
        for grant, answer in zip(grants, answers, strict=True):
            if isinstance(answer, StoreError):
                failed.append(grant)
                problem = answer
            elif not answer:
                self.lost(grant, EXPIRED_OR_EVICTED)
            elif grant.id in self.watched and not grant._leaving:
                self._alarm.set(grant._renewed(sent))
                grant._note_wanted(answer == RENEWAL_WANTED)
                renewed.append(grant)
        self._emit(renewed, "renewed", "")
        if problem is not None:
            self._failed(failed, problem)

    def _failed(self, grants: Sequence[AsyncGrant], error: BaseException) -> None:
        """Schedule a retry, except for grants that were released."""
        self._again(grants)
        watched = [grant for grant in grants if grant.id in self.watched]
        if watched and not isinstance(error, rt.CANCELLED):
            log.warn("Could not renew %d lease(s), retrying: %s", len(watched), error)
            self._emit(watched, "renewal failed", f"{type(error).__name__}: {error}")

    def _again(self, grants: Sequence[AsyncGrant]) -> None:
        for grant in grants:
            self._alarm.set(grant._retries(self._now()))

    def _emit(self, grants: Sequence[AsyncGrant], kind: EventKind, reason: str) -> None:
        """Notify the listeners without delaying a renewal."""
        if grants and (self._client.listeners or GLOBAL_LISTENERS):
            rt.run_detached("interlock-events", Context(), _emit_each, grants, kind, reason)

    async def leave(self, claim: Claim) -> None:
        """Withdraw a claim, even if this call is cancelled; retry in the background."""
        try:
            await rt.finish(self._queue.leave, claim)
        except LockError as error:
            if not self._client.closed:  # otherwise `close` has also tried
                name = name_of(claim.spec.key)
                log.warn("Could not withdraw a claim of %r, retrying: %s", name, error)
                self.take_out(claim)


def _emit_each(grants: Sequence[AsyncGrant], kind: EventKind, reason: str) -> None:
    for grant in grants:
        grant._emit(kind, reason)
