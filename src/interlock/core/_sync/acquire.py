# Generated from _async/acquire.py by tools/unasync.py; change that one.
"""Acquire, on any Queue: enter the line, wait for the turn, start again when the claim is lost.

The lease of a claim is counted from *before* the request that created or renewed it was sent, on the claimer's
own clock; the store counts it from the arrival.  So a claim whose own deadline has not passed has not expired in the
store either, whatever the two clocks show.

The runtime is an argument: what sleeps, waits and looks at a clock.  The model checker passes one of its own.  Times
are compared by `rt.before` only, and all that this knows is in locals and slots: the checker sees all of the state.
"""

from typing import Any

from interlock.core.claims import SEPARATOR, Claim
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import (
    BUSY,
    GIVEN_UP,
    NOT_IN_LINE,
    AcquireCall,
    Queue,
    EnterResult,
    Granted,
    Held,
    Outage,
)

MOST_PAUSE = 0.02  # seconds that are added before a busy store is asked again
LOST_REPLIES = 3  # ask again so many times in a row; then the caller must know


class Progress:
    """What a call knows of its claim from one request to the next.

    Attributes:
        now: the moment before the next request.
        sent: the moment before the last request in which the store took part, from which the lease counts.
        in_line: True if the claim is known to be in the line.
        uncertain: True if it may have entered, since a request of it had no answer.
        granted: the hand-over of this claim, if it came.
        unanswered: requests in a row that had no answer.
        away_since: since when the store is away; None while it is there.
        left_behind: why a claim that was granted too late could not be taken out.
    """

    __slots__ = ("away_since", "granted", "in_line", "left_behind", "now", "sent", "unanswered", "uncertain")

    def __init__(self, started: float) -> None:
        self.now = self.sent = started
        self.in_line = self.uncertain = False
        self.granted: Granted | None = None
        self.unanswered = 0
        self.away_since: float | None = None
        self.left_behind: StoreError | None = None


def acquire(rt: Any, queue: Queue, call: AcquireCall) -> Held | None:
    """Enter the line with `call.claim` and wait until it holds the lock.

    Args:
        rt: the runtime.
        queue: the store.
        call: claim, clock of the start, deadline (None for no limit), one try or wait.

    Returns:
        The held claim, or None when the time is over, the try was refused or the run was done before; then nothing is
        left behind.

    Raises:
        StoreError: the store failed, or was away until the time was over, or the call was called off; the caller
            then leaves with `call.claim`, if that entered.
    """
    at = Progress(call.started)
    try:
        while True:
            if call.closed:
                raise _closed(call.claim)
            answer = _ask(queue, call, at)
            if answer.state == "using":
                until = at.sent + call.claim.spec.ttl
                if rt.before(call.now, until):
                    return Held(call.claim, answer.fence, until, answer.slot)
                at.left_behind = _give_back(queue, call.claim)
            if answer.state == "using" or answer.state == "gone":
                goes_on = _start_afresh(rt, call, at, answer)
            elif answer.state in ("refused", "done"):
                call.done = answer.state == "done"
                goes_on = False
            elif answer.state == "occupied" and call.waiter is None:
                call.waiter = queue.subscribe()
                goes_on = True
            else:
                goes_on = _wait(rt, queue, call, at, answer)
            if not goes_on:
                return None
            if at.granted is None:
                at.now = rt.time_by(call.now)
    finally:
        if call.waiter is not None:
            call.waiter.close()


def _ask(queue: Queue, call: AcquireCall, at: Progress) -> EnterResult:
    """Say where the claim stands: by its hand-over, or as the store answers."""
    if at.granted is not None:
        at.away_since = None
        return EnterResult("using", at.granted.fence, slot=at.granted.slot)
    if call.first is not None:
        answer, call.first = call.first, None
        at.unanswered = 0
    else:
        answer = _enter(queue, call, at)
    if answer.asked:
        at.sent = at.now
    if answer.outage is None:
        at.away_since = None
    return answer


def _enter(queue: Queue, call: AcquireCall, at: Progress) -> EnterResult:
    """Ask the store, and count the requests in a row that had no answer."""
    before, call.entered = call.entered, True
    try:
        # An id enters once: what was told to a claim that has expired must not be taken for one that entered later.
        answer = queue.enter(call.claim, call.waiter, call.wait, at.in_line or at.uncertain)
    except UnknownOutcome:
        if at.unanswered >= LOST_REPLIES:
            raise
        at.unanswered += 1
        at.uncertain = True
        return BUSY
    if answer.state == "indeterminate":
        at.uncertain = True
    if answer.state in NOT_IN_LINE:
        call.entered = before
    if answer is not GIVEN_UP:
        at.unanswered = 0
    return answer


def _start_afresh(rt: Any, call: AcquireCall, at: Progress, answer: EnterResult) -> bool:
    """Give the call a claim with a fresh id; say whether there is time for it.

    Raises:
        StoreError: there is none, and the claim before could not be taken out; or too many had no answer.
    """
    call.claim = call.claim._replace(id=rt.fresh_id())
    call.entered = at.in_line = at.uncertain = False
    at.granted = None
    # Leases that end before the replies come would else keep the caller here for ever.
    if not _in_time(rt, call):
        if at.left_behind is not None:
            raise at.left_behind
        if answer.outage is not None:
            raise answer.outage.error
        return False
    if answer.outage is not None:
        rt.sleep(_pause_in_outage(rt, call, at, answer.outage, answer.look_again))
    elif answer is GIVEN_UP:
        at.unanswered = _one_more(at.unanswered)
        rt.sleep(answer.look_again * 2**at.unanswered)
    return True


def _wait(rt: Any, queue: Queue, call: AcquireCall, at: Progress, answer: EnterResult) -> bool:
    """Wait until the claim is handed the lock, or it is time to ask again; say whether there was time for it."""
    if answer.state == "pending" and not at.in_line:
        at.in_line = True
        if call.wait and call.on_queued is not None:
            call.on_queued(call)
    if not _in_time(rt, call):
        _time_is_over(queue, call, answer.outage, at.in_line)
        return False
    pause = answer.look_again
    if answer.outage is not None:
        pause = _pause_in_outage(rt, call, at, answer.outage, pause)
    if answer.state == "busy":  # a store that is busy for long is not asked all the time
        pause += min(MOST_PAUSE, (at.now - call.started) / 20)
    if call.waiter is None:
        call.waiter = answer.waiter
    if answer.state == "pending" and call.wait and call.waiter is None:
        call.waiter = queue.subscribe()
    elif call.waiter is None or not at.in_line:
        rt.sleep(pause)
    else:
        pause = min(pause, call.claim.spec.ttl / 3)
        if call.deadline is not None:
            pause = max(0.0, min(pause, call.deadline - rt.time_by(call.now)))
        granted = call.waiter.wait(pause)
        if granted is not None and granted.id == call.claim.id:
            at.granted = granted
    return True


def _in_time(rt: Any, call: AcquireCall) -> bool:
    """Say whether the caller still wants to wait."""
    return call.deadline is None or bool(rt.before(call.now, call.deadline))


def _give_back(queue: Queue, claim: Claim) -> StoreError | None:
    """Take out a claim that was granted too late; return why not, since then it ends with its lease."""
    try:
        queue.leave(claim)
    except StoreError as error:  # the next request says whether waiting helps
        return error
    return None


def _one_more(unanswered: int) -> int:
    """Count one more request without an answer.

    Raises:
        UnknownOutcome: there were too many in a row.
    """
    if unanswered >= LOST_REPLIES:
        raise UnknownOutcome(f"no answer to {unanswered + 1} claims in a row: is the store there?")
    return unanswered + 1


def _closed(claim: Claim) -> StoreError:
    return StoreError(
        f"the connection was closed while it waited for {claim.spec.key.partition(SEPARATOR)[2]!r}: it does not wait "
        f"any more; connect again"
    )


def _pause_in_outage(rt: Any, call: AcquireCall, at: Progress, outage: Outage, pause: float) -> float:
    """Return how many seconds to wait for a store that is away.

    Raises:
        StoreError: the call has no limit of time, and the store has been away for longer than `outage.wait_limit`.
    """
    at.away_since = at.now if at.away_since is None else at.away_since
    at.now = rt.time_by(call.now)
    if call.deadline is not None:
        return max(0.0, min(pause, call.deadline - at.now))
    if at.now - at.away_since > outage.wait_limit:
        raise outage.error
    return pause


def _time_is_over(queue: Queue, call: AcquireCall, outage: Outage | None, queued: bool) -> None:
    """Take the claim out of the line, once: where it fails, its lease ends, and asking again would take as long.

    Raises:
        StoreError: it could not be taken out; or the store was away, and the claim did not wait for another one.
    """
    if call.entered:
        try:
            queue.leave(call.claim)
        except StoreError as error:
            call.entered = False
            if outage is not None:
                raise outage.error from error
            raise
        call.entered = False  # not where it was broken off: then the caller leaves
    if outage is not None and not queued:
        raise outage.error
