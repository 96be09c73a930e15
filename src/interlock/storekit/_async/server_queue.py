"""The queue of a server store: one request per step; handles lost replies and outages.

A store gives a `Wire` (its requests and replies), a pool with `ask(request, deadline, undo)`, and a function that
subscribes (see `listener`); a subclass lists claims and implements the doctor.

Each request may be sent twice, because claims have ids.  If a request that may enter a claim has no reply in time,
its `undo` follows on the same connection, so that the id of the claim is never used again.
"""

import random
from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol

from interlock.core._async.protocols import AsyncQueue
from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import ConnectionEnded, Denied, NoAnswer, TransientRefusal, Unreachable, outage
from interlock.core.line import RENEWAL_GONE, RENEWAL_WANTED, unchecked
from interlock.core.queue import BUSY, CLAIM_GONE, OCCUPIED, REFUSED, EnterResult, Granted, Held, Renewed, Wakeable
from interlock.core.renewal import ANSWER_WITHIN
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.runtime.waiters import Successors
from interlock.storekit._async.listener import AsyncListener, AsyncSubscription
from interlock.storekit.wire import (
    AGAIN,
    REMOVED,
    TRY,
    WAIT,
    WAITS,
    A,
    A_co,
    LeaveResult,
    Mode,
    Q,
    Q_contra,
    QueuedBehind,
    Wire,
)

CUTS = 5  # connections that may end in a row during one request
POLL_INTERVAL = 5.0  # seconds until the latest poll, in case a message was missed
POLLS_OF_PROCESS = 200  # polls per second by all waiters of a process together


class AsyncAsks(Protocol[Q_contra, A_co]):
    """Sends requests: a pool, or a substitute.

    Attributes:
        entering: as for `AsyncPool`.
    """

    entering: set[str]

    async def ask(self, request: Q_contra, deadline: float, undo: Claim | None = None) -> A_co:
        """Send like `AsyncPool.ask`."""

    def invalidate_connections(self) -> None:
        """Stop using all present connections."""

    def close_idle(self) -> None:
        """Close unused connections, except for one."""

    def close(self) -> None:
        """Close all connections; those in use after their requests."""


class AsyncServerQueue(AsyncQueue, Generic[Q, A]):
    """A queue on a server, for one process or event loop.

    Args:
        wire: the protocol of the server.
        pool: sends a request and returns the reply.
        subscribe: as for `AsyncListener`; it subscribes to `channel`.
        channel: the channel of this process or loop only.

    Attributes:
        channel: the argument.
    """

    def __init__(
        self,
        wire: Wire[Q, A],
        pool: AsyncAsks[Q, A],
        subscribe: Callable[[float], rt.Result[AsyncSubscription]],
        channel: str,
    ) -> None:
        self._wire = wire
        self._pool = pool
        self.channel = channel
        self._waiters = Successors()
        self._listener = AsyncListener(subscribe, self._waiters, wire.where, wire.io_timeout)
        self._verify: Callable[[str], object] = lambda id: None
        self._answered = False
        self._wakes_at = 0.0

    def subscribe(self) -> rt.AsyncWaiter[Granted]:
        """Return a waiter for the caller."""
        return rt.AsyncWaiter()

    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        """Enter like `AsyncQueue.enter`."""
        mode: Mode = AGAIN if already_queued else WAIT if may_queue else TRY
        made: rt.AsyncWaiter[Granted] | None = None
        if waiter is not None:
            self._waiters.add(claim.id, waiter)
            if not self._listener.live:
                try:
                    await self._listener.start(clock.now() + self._wire.io_timeout)
                except StoreError as error:
                    return self._failed(claim, error, may_queue, already_queued, None)
        elif mode is WAIT:
            if self._listener.live:
                made = rt.AsyncWaiter()
                self._waiters.add(claim.id, made)
            # A claim enters the line only if its process listens.  Read this after adding the waiter, because the
            # listener ends only while there is no waiter.
            if not self._listener.live:
                if made is not None:
                    self._waiters.remove(claim.id)
                made, mode = None, TRY
        request, undo = self._wire.enter(claim, mode, self.channel), None if already_queued else claim
        lost = False
        self._pool.entering.add(claim.id)
        try:
            try:
                reply = await self._pool.ask(request, clock.now() + self._wire.io_timeout, undo)
            except ConnectionEnded:
                lost = True  # may have been performed, whatever the next request returns
                reply = await self._ask(request, undo)
            while (entered := self._wire.entered(reply)) is BUSY:
                lost = True  # `_ask` does not report whether a connection ended
                reply = await self._ask(request, undo)
        except StoreError as error:
            return self._failed(claim, error, may_queue, already_queued, mode, lost)
        finally:
            self._pool.entering.discard(claim.id)
        self._answered = True
        answer = self._entered(claim, entered, may_queue, already_queued)
        if answer.state != "pending":
            return answer
        poll_after = min(max(POLL_INTERVAL, len(self._waiters.by_id) / POLLS_OF_PROCESS), answer.poll_after)
        poll_after *= random.uniform(1.0, 1.1)  # not all at the same moment
        return unchecked(EnterResult, ("pending", 0, poll_after, True, None, 0, made))

    def _entered(
        self, claim: Claim, answer: EnterResult | QueuedBehind | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        """Process the reply of the server."""
        id = claim.id
        if isinstance(answer, QueuedBehind):
            if not claim.spec.waits_for_server:
                self._waiters.follow(answer.before, id, answer.fence)
            answer = EnterResult("pending", poll_after=answer.poll_after)
        if answer is not None and answer.state == "pending":
            return answer
        if answer is not None and answer.state == "using":
            self._waiters.holds(id)
            self._waiters.remove(id)
            return answer
        self._waiters.drop_held(id)  # if it was notified that it holds the lock, it was evicted
        made = self._waiters.leaves(id)
        if made is not None:
            made.settle(False)
        return answer or (CLAIM_GONE if already_queued else OCCUPIED if may_queue else REFUSED)

    def _failed(
        self,
        claim: Claim,
        error: StoreError,
        may_queue: bool,
        already_queued: bool,
        mode: Mode | None,
        lost: bool = False,
    ) -> EnterResult:
        """Return the state of a claim whose request failed.

        Args:
            claim: the claim.
            error: the failure.
            may_queue, already_queued: as for `enter`.
            mode: the mode of the sent request; None if none was sent.
            lost: True if a connection ended during an earlier request of this step.

        Raises:
            StoreError: waiting does not help, or was not requested; Refused and Unreachable only if nothing was done.
        """
        unknown = mode is not None and not already_queued and (lost or isinstance(error, UnknownOutcome))
        late = unknown and isinstance(error, NoAnswer)
        if not already_queued:
            self._waiters.leaves(claim.id)
        if isinstance(error, TransientRefusal):
            may_pass = already_queued or not error.needs_operator
        else:
            may_pass = isinstance(error, (UnknownOutcome, Unreachable)) and not isinstance(error, Denied)
        if not may_pass or not (may_queue or late):
            if unknown and not isinstance(error, UnknownOutcome):
                raise UnknownOutcome(str(error)) from error
            raise error
        answered = self._answered or (isinstance(error, TransientRefusal) and not error.is_unavailable)
        state: Literal["gone", "busy", "indeterminate"] = "gone" if late else "indeterminate" if unknown else "busy"
        return EnterResult(
            state,
            poll_after=random.uniform(0.2, 0.4),
            lease_extended=False,
            outage=outage(error, claim.spec.ttl, answered),
        )

    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        """Leave like `AsyncQueue.leave`."""
        self._pool.entering.discard(claim.id)
        before = self._waiters.before(claim.id) if keep_for else ()
        made = None if keep_for else self._waiters.leaves(claim.id)
        let_in = "" if made is None else made.id
        request = self._wire.leave(claim, self.channel, let_in, keep_for, stored_result, before)
        lost = False
        try:
            try:
                # Without its reply nobody would be notified; the server of the others performs requests in order.
                ask = self._ask_to_the_end if self._wire.client_notifies else self._ask_once
                reply = await ask(request)
            except (ConnectionEnded, NoAnswer):
                lost = True
                reply = await self._ask(request)
        except BaseException:
            self._left_unheard(let_in)
            raise
        if keep_for:
            self._waiters.drop_held(claim.id)
            self._waiters.remove(claim.id)
        left = self._wire.left(reply)
        if made is not None and made.settle(left.removed) and not left.removed:
            left = left._replace(removed=True)  # a request of its successor has removed the claim
        removed = left is REMOVED or await self._left(claim, left, let_in)
        if keep_for and left.more and not removed:  # one step passes over a limited number of claims
            removed = await self._left(claim, self._wire.left(await self._ask(request)), "")
        if lost:
            self._wake_all()  # the lost reply named the promoted waiters
        # After a lost reply the answer is yes, because the earlier request may have removed the claim.
        return removed or (lost and not keep_for)

    async def _left(self, claim: Claim, left: LeaveResult, let_in: str) -> bool:
        """Process the reply to a leave: notify the promoted waiters of this process."""
        removed = left.removed
        self._notify(left)
        nobody = claim._replace(id=rt.fresh_id())  # if the record is refused, the claim itself stays in the line
        while left.more:
            try:
                left = self._wire.left(await self._ask(self._wire.leave(nobody, self.channel, "")))
            except StoreError:  # the outcome for the claim is known; the next request for this name continues
                self._wake_all()
                break
            self._notify(left)
        if let_in and not removed:
            # The server no longer had the predecessor, so its promises to successors may be void.
            self._left_unheard(let_in)
        return removed

    def _notify(self, left: LeaveResult) -> None:
        for id, fence, slot in left.promoted:
            self._waiters.notify(id, fence, slot)

    def _left_unheard(self, let_in: str) -> None:
        """Let all waiters poll and the successor renew: a reply was lost, or a promise is void."""
        self._wake_all()
        if let_in:
            self._verify(let_in)

    def _wake_all(self) -> None:
        """Let all waiters poll; if there are thousands, limit the rate to avoid a storm."""
        if clock.now() >= self._wakes_at:
            self._wakes_at = clock.now() + max(0.0, len(self._waiters.by_id) / POLLS_OF_PROCESS - POLL_INTERVAL)
            self._waiters.wake_all()

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """Renew like `AsyncQueue.renew`; leave time for other attempts before a lease expires."""
        limit = min(self._wire.io_timeout, *[claim.spec.ttl * ANSWER_WITHIN for claim in claims])
        request = self._wire.renew(claims, [self._waiters.before(claim.id) for claim in claims])
        answers = self._wire.renewed(claims, await self._ask_twice(request, limit))
        for at, claim in enumerate(claims):
            if answers[at] == WAITS:  # the claim waits at the server: the grant of this process is lost
                answers[at] = RENEWAL_WANTED if self._waiters.drop_held(claim.id) is None else RENEWAL_GONE
        return answers

    async def run_result(self, key: str) -> str | None:
        """Return like `AsyncQueue.run_result`."""
        return self._wire.value(await self._ask_twice(self._wire.run_result(key, delete=False)))

    async def delete_run_result(self, key: str) -> bool:
        """Delete like `AsyncQueue.delete_run_result`."""
        return self._wire.value(await self._ask_once(self._wire.run_result(key, delete=True))) is not None

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        """Adopt like `AsyncQueue.adopt`."""
        request = self._wire.adopt(key, id, claim, self.channel, self._waiters.before(id))
        renamed = claim.id != id  # a writer that becomes a reader keeps its id, and its successor
        before = self._waiters.drop_held(id) if renamed else None
        try:
            # A cancelled caller withdraws the new id afterwards; that request must not overtake this request.
            found: tuple[int, int] | EnterResult | None = BUSY
            while isinstance(found, EnterResult):
                found = self._wire.adopted(await rt.finish_within(self._wire.io_timeout, self._ask_twice, request))
        except BaseException:
            if before is not None:  # the old claim may still hold the lock
                self._waiters.holds(id, before)
            raise
        if found is None:
            return None
        if renamed and not detached:
            self._waiters.holds(claim.id)
        return Held(claim, found[0], 0.0, found[1])

    async def evict(self, key: str, id: str | None) -> int:
        """Evict like `AsyncQueue.evict`."""
        return await rt.finish_within(self._wire.io_timeout, self._evict, key, id)

    async def _evict(self, key: str, id: str | None) -> int:
        count, more, rest = self._wire.evicted(await self._ask_once(self._wire.evict(key, id)))
        while rest:
            also, more, rest = self._wire.evicted(await self._ask_once(self._wire.evict(key, id, rest)))
            count += also
        if more:
            await self.leave(Claim(rt.fresh_id(), LockSpec(key)))  # of no caller: it promotes the others
        return count

    def watch_doubts(self, verify: Callable[[str], bool]) -> None:
        """See `AsyncQueue.watch_doubts`."""
        self._verify = verify

    def let_go(self, id: str) -> None:
        """Forget like `AsyncQueue.let_go`; the successor is not granted the lock."""
        self._waiters.drop_held(id)

    def close_idle(self) -> None:
        """Close unused connections, except for one."""
        self._pool.close_idle()

    async def aclose(self) -> None:
        """Close all connections."""
        self.abort()

    def abort(self) -> None:
        """Close all connections without waiting."""
        self._pool.close()
        self._waiters.wake_all()  # so that each waiter here notices the end
        self._listener.close()

    def invalidate_connections(self) -> None:
        """Use no present connection, and let all poll: another server may have taken over."""
        self._pool.invalidate_connections()
        self._listener.resubscribe()
        self._waiters.wake_all()

    async def _ask(self, request: Q, undo: Claim | None = None, limit: float | None = None) -> A:
        """Send a request; if a connection ends, use others."""
        deadline = clock.now() + (limit or self._wire.io_timeout)
        for _ in range(CUTS):
            try:
                return await self._pool.ask(request, deadline, undo)
            except ConnectionEnded:
                pass
        return await self._pool.ask(request, deadline, undo)

    async def _ask_once(self, request: Q) -> A:
        """Send a request that must not be performed twice without the caller's knowledge."""
        return await self._pool.ask(request, clock.now() + self._wire.io_timeout)

    async def _ask_to_the_end(self, request: Q) -> A:
        """Send a request, and wait for its reply even if the caller is cancelled."""
        return await rt.finish_within(self._wire.io_timeout, self._ask_once, request)

    async def _ask_twice(self, request: Q, limit: float | None = None) -> A:
        """Send a request, and once more without a reply: a proxy may have dropped the connection."""
        try:
            return await self._ask(request, None, limit)
        except NoAnswer:
            return await self._ask(request, None, limit)
