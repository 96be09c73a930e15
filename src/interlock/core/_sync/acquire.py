# Generated from _async/acquire.py by tools/unasync.py; change that one.
"""Acquire on any queue: enter the line, wait, start again if the claim is gone.

The lease of a claim counts from *before* the request that created or renewed it was sent, on the caller's own
clock; the store counts it from the arrival.  So a claim whose own deadline has not passed has not expired in the
store either, whatever the two clocks show.

The runtime (`fresh_id`, `sleep`, `before`, `time_by`) is an argument, because the model checker passes its own.
Times are compared only by `rt.before`, and the state is only in locals and slots, so that the checker sees all of it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from interlock.core._sync.protocols import Queue, Runtime, Waiting
from interlock.core.claims import Claim, ClaimView, name_of
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.line import unchecked
from interlock.core.queue import (
    BUSY,
    GIVEN_UP,
    NOT_IN_LINE,
    AcquireCall,
    EnterResult,
    Held,
    Outage,
    waiters_ahead,
)
from interlock.core.renewal import RENEW_AFTER

MOST_PAUSE = 0.02  # seconds that are added before a busy store is polled again
UNHEARD = BUSY._replace(state="indeterminate")  # no reply came: the store is asked again immediately
LOST_REPLIES = 3  # retries after lost replies in a row; then `acquire` raises UnknownOutcome


def acquire(rt: Runtime, queue: Queue, call: AcquireCall[Waiting]) -> Held | None:
    """Enter the line with `call.claim` and wait until it holds the lock.

    Args:
        rt: the runtime.
        queue: the store.
        call: claim, clock of the start, deadline (None for no limit), and whether to wait.

    Returns:
        The held claim; None if the time is over, the try was refused, too many others wait, or the run was already
        done.  Then nothing is left behind.

    Raises:
        StoreError: the store failed, or was unavailable until the time was over, or the call was cancelled.  The
            caller then leaves with `call.claim`, if that claim entered.
    """
    try:
        while True:
            if call.closed:
                raise StoreError(
                    f"The connection was closed while waiting for {name_of(call.claim.spec.key)!r}. "
                    "Call connect() again."
                )
            answer = _ask(queue, call)
            if answer.state == "using":
                until = call.sent + call.claim.spec.ttl
                if rt.before(call.now, until):
                    return unchecked(Held, (call.claim, answer.fence, until, answer.slot))
                call.left_behind = _give_back(queue, call.claim)
            if answer.state == "using" or answer.state == "gone":
                goes_on = _start_afresh(rt, call, answer)
            elif answer.state in ("refused", "done"):
                call.done = answer.state == "done"
                goes_on = False
            elif answer.state == "occupied" and call.waiter is None:
                call.waiter = queue.subscribe()
                goes_on = True
            else:
                goes_on = _wait(rt, queue, call, answer)
            if not goes_on:
                return None
            if call.granted is None:
                call.moment = rt.time_by(call.now)
    finally:
        if call.waiter is not None:
            call.waiter.close()


def _ask(queue: Queue, call: AcquireCall[Waiting]) -> EnterResult:
    """Return the claim's state, from its hand-over or from the store."""
    if call.granted is not None:
        answer = unchecked(EnterResult, ("using", call.granted.fence, 0.0, False, None, call.granted.slot, None))
    elif call.first_answer is not None:
        answer, call.first_answer = call.first_answer, None
    else:
        answer = _enter(queue, call)
    if answer.lease_extended:
        call.sent = call.moment
    if answer.outage is None:
        call.unavailable_since = None
    return answer


def _enter(queue: Queue, call: AcquireCall[Waiting]) -> EnterResult:
    """Ask the store, and count the requests in a row without a reply.

    Raises:
        UnknownOutcome: too many requests had no reply.
    """
    before, call.entered = call.entered, True
    try:
        # An id enters only once, so that a message for an expired claim cannot reach a later one.
        answer = queue.enter(call.claim, call.waiter, call.may_queue, call.in_line or call.uncertain)
    except UnknownOutcome:
        if call.unanswered >= LOST_REPLIES:
            raise
        answer = UNHEARD
    if answer.state == "indeterminate":
        call.uncertain = True
    if answer.state in NOT_IN_LINE:
        call.entered = before
    call.unanswered = call.unanswered + 1 if answer is UNHEARD or answer is GIVEN_UP else 0
    if call.unanswered > LOST_REPLIES:
        raise UnknownOutcome(f"No reply to {call.unanswered} claims in a row. Check that the store is reachable.")
    return answer


def _start_afresh(rt: Runtime, call: AcquireCall[Waiting], answer: EnterResult) -> bool:
    """Give the call a claim with a fresh id; return False if no time is left.

    Raises:
        StoreError: no time is left, and the previous claim could not be withdrawn.
    """
    # One expression, because the model checker counts the values of a local as states.
    if answer.outage is not None or answer is GIVEN_UP or (answer.state == "using" and call.left_behind is not None):
        call.on_left(call.claim)
    call.claim = call.claim._replace(id=rt.fresh_id())
    call.entered = call.in_line = call.uncertain = call.counted = False
    call.granted = None
    # Otherwise leases that expire before the replies come would keep the caller here forever.
    if not _in_time(rt, call):
        if call.left_behind is not None:
            raise call.left_behind
        if answer.outage is not None:
            raise answer.outage.error
        return False
    if answer.outage is not None:
        rt.sleep(_pause_in_outage(rt, call, answer.outage, answer.poll_after))
    elif answer is GIVEN_UP:
        rt.sleep(answer.poll_after * 2**call.unanswered)
    return True


def _wait(rt: Runtime, queue: Queue, call: AcquireCall[Waiting], answer: EnterResult) -> bool:
    """Wait for a hand-over or the next poll; return False if no time is left, or too many others wait."""
    call.waiter = call.waiter or cast("Waiting | None", answer.waiter)
    if call.max_waiters is not None and _too_many_wait(queue, call, answer, call.max_waiters):
        return call.full_line is None and _start_afresh(rt, call, answer)
    if answer.state == "pending" and not call.in_line:
        call.in_line = True
        if call.may_queue and call.on_queued is not None:
            call.on_queued(call)
        if call.check_line is not None:
            _check_line(queue, call, call.check_line)
    if not _in_time(rt, call):
        _time_is_over(queue, call, answer.outage, call.in_line)
        return False
    pause = answer.poll_after
    if answer.outage is not None:
        pause = _pause_in_outage(rt, call, answer.outage, pause)
    if answer.state == "busy":  # do not poll a busy store continuously
        pause += min(MOST_PAUSE, (call.moment - call.started) / 20)
    if answer.state == "pending" and call.may_queue and call.waiter is None:
        call.waiter = queue.subscribe()
    elif call.waiter is None or not call.in_line:
        rt.sleep(pause)
    else:
        pause = min(pause, call.claim.spec.ttl * RENEW_AFTER)
        if call.deadline is not None:
            pause = max(0.0, min(pause, call.deadline - rt.time_by(call.now)))
        granted = call.waiter.wait(pause)
        if granted is not None and granted.id == call.claim.id:
            call.granted = granted
    return True


def _too_many_wait(queue: Queue, call: AcquireCall[Waiting], answer: EnterResult, most: int) -> bool:
    """Withdraw the claim if `most` others wait ahead of it; return True then.

    The others may have been withdrawn for the same reason, so that nobody waits any more.  Therefore the waiters are
    counted again after the withdrawal.  If there are still too many, `call.full_line` is the line and the caller is
    refused; otherwise the caller enters the line again.  So callers that arrive together can't all be refused.
    """
    if call.counted or answer.state != "pending" or answer.outage is not None:
        return False
    try:
        line = queue.look(call.claim.spec.key)
    except StoreError:  # counted after the next reply
        return False
    call.counted = True
    if len(waiters_ahead(line, call.claim.id)) < most:
        return False
    with suppress(StoreError):  # the call starts again, as in any outage
        _time_is_over(queue, call, None, True)
        line = queue.look(call.claim.spec.key)
        if len(waiters_ahead(line)) >= most:
            call.full_line = line
    return True


def _check_line(
    queue: Queue, call: AcquireCall[Waiting], check: Callable[[Sequence[ClaimView]], None]
) -> None:
    """Let the caller look at the claims of its name, once for each of its own claims; a failed look is left out."""
    try:
        views = queue.look(call.claim.spec.key)
    except StoreError:
        return
    check(views)


def _in_time(rt: Runtime, call: AcquireCall[Waiting]) -> bool:
    """Return True if the caller still wants to wait."""
    return call.deadline is None or rt.before(call.now, call.deadline)


def _give_back(queue: Queue, claim: Claim) -> StoreError | None:
    """Withdraw a claim that was granted too late; return the error if that failed."""
    try:
        queue.leave(claim)
    except StoreError as error:  # the next request shows whether waiting helps
        return error
    return None


def _pause_in_outage(rt: Runtime, call: AcquireCall[Waiting], outage: Outage, pause: float) -> float:
    """Return how many seconds to wait for an unavailable store.

    Raises:
        StoreError: the call has no time limit, and the store was unavailable longer than `outage.wait_limit`.
    """
    call.unavailable_since = call.moment if call.unavailable_since is None else call.unavailable_since
    call.moment = rt.time_by(call.now)
    if call.deadline is not None:
        return max(0.0, min(pause, call.deadline - call.moment))
    if call.moment - call.unavailable_since > outage.wait_limit:
        raise outage.error
    return pause


def _time_is_over(
    queue: Queue, call: AcquireCall[Waiting], outage: Outage | None, queued: bool
) -> None:
    """Withdraw the claim once; if that fails, pass the claim to `on_left`.

    Raises:
        StoreError: the claim could not be withdrawn; or the store was unavailable, and the claim was not waiting
            behind another claim.
    """
    if call.entered and outage is None:
        try:
            queue.leave(call.claim)
        except StoreError:
            call.entered = False
            call.on_left(call.claim)
            raise
    elif call.entered:  # the caller does not wait for the unavailable store
        call.on_left(call.claim)
    call.entered = False  # skipped after an interrupt: then the caller withdraws the claim
    if outage is not None and not queued:
        raise outage.error
