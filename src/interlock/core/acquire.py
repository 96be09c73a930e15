"""Acquire, on any Queue: enter the line, wait for the turn, start again when the claim is lost.

The lease of a claim is counted from *before* the request that created or renewed it was sent, on the claimer's
own monotonic clock; the store counts it from the arrival.  So a claim whose own deadline has not passed has not
expired in the store either, whatever the two clocks show.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from interlock.core.claims import SEPARATOR, Claim
from interlock.core.effects import FRESH_ID, NOW, Before, Op, Sleep, Subscribe, Wait
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import BUSY, GIVEN_UP, EnterResult, Outage, Queue

NOT_IN_LINE = ("busy", "occupied", "refused")
MOST_PAUSE = 0.02  # seconds that are added before a busy store is asked again
LOST_REPLIES = 3  # ask again so many times in a row; then the caller must know


class Held(NamedTuple):
    """A claim that holds the lock.

    Attributes:
        claim: the claim (its id may differ from the first one asked with).
        fence: the fencing token.
        deadline: when its lease ends, on the holder's monotonic clock.
    """

    claim: Claim
    fence: int
    deadline: float


class AcquireCall:
    """One call of acquire; `claim` is always the one to take out of the line if the call is broken off.

    `first` is the store's answer if the claim has entered already; `owner` says whose call it is.  `entered` is False
    while nothing of it can be in the line, so that there is nothing to take out.  `on_queued` is called with it each
    time that its claim begins to wait in line; `queued`, the claim that last did, is for whoever is called.
    """

    __slots__ = (
        "claim", "closed", "deadline", "entered", "first", "on_queued", "owner", "queued", "started", "wait",
        "wakeup",
    )  # fmt: skip

    def __init__(
        self,
        claim: Claim,
        started: float,
        deadline: float | None,
        wait: bool,
        first: EnterResult | None = None,
        owner: Any = None,
    ) -> None:
        self.claim = claim
        self.started = started
        self.deadline = deadline
        self.wait = wait
        self.first = first
        self.owner = owner
        self.entered = first is not None and first.state not in NOT_IN_LINE
        self.closed = False
        self.wakeup: Any = None
        self.on_queued: Callable[[AcquireCall], object] | None = None
        self.queued: Claim | None = None

    def call_off(self) -> None:
        """Let the call end with StoreError soon, because its connection is closed; from any thread."""
        self.closed = True  # in this order: who subscribes looks at it afterwards
        if self.wakeup is not None:
            self.wakeup.wake()


def acquire(queue: Queue, call: AcquireCall) -> Op[Held | None]:
    """Enter the line with `call.claim` and wait until it holds the lock.

    Args:
        queue: the store.
        call: claim, clock of the start, deadline (monotonic; None for no limit), one try or wait.

    Returns:
        The held claim, or None when the time is over or the try was refused; then nothing is left behind.

    Raises:
        StoreError: the store failed, or was away until the time was over, or the call was called off; the caller
            then leaves with `call.claim`, if that entered.
    """
    claim = call.claim
    sent = now = call.started
    wakeup = granted = None
    queued = False  # the claim is known to stand in line
    unanswered = 0  # requests in a row
    away_since: float | None = None
    left_behind: StoreError | None = None
    while True:
        if call.closed:
            raise _closed(claim)
        if granted is not None:
            answer = EnterResult("using", granted.fence)
        else:
            answer, unanswered = yield from _enter(queue, call, wakeup, queued, unanswered)
            if answer.asked:
                sent = now
        if answer.outage is None:
            away_since = None
        if answer.state == "using":
            alive = yield Before(sent + claim.spec.ttl)
            if alive:
                return Held(claim, answer.fence, sent + claim.spec.ttl)
            left_behind = yield from _give_back(queue, claim)
        if answer.state == "using" or answer.state == "gone":
            fresh = yield FRESH_ID
            claim = call.claim = claim._replace(id=fresh)
            call.entered = queued = False
            granted = fresh = None
            # Leases that end before the replies come would else keep the caller here for ever.
            if not (yield from _in_time(call)):
                if left_behind is not None:
                    raise left_behind
                return None
            if answer is GIVEN_UP:
                unanswered = _one_more(unanswered)
                yield Sleep(answer.look_again * 2**unanswered)
        elif answer.state == "refused":
            return None
        elif answer.state == "occupied" and wakeup is None:
            wakeup = call.wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
        else:
            if answer.state == "pending" and not queued:
                queued = True
                if call.wait and call.on_queued is not None:
                    call.on_queued(call)
            if not (yield from _in_time(call)):
                yield from _time_is_over(queue, call, answer.outage, queued)
                return None
            pause = answer.look_again
            if answer.outage is not None:
                away_since = now if away_since is None else away_since
                now = yield NOW
                pause = _until_next_try(call, answer.outage, pause, now, away_since)
            if answer.state == "busy":  # whoever keeps the store busy for long is not asked all the time
                pause += min(MOST_PAUSE, (now - call.started) / 20)
            if answer.state == "pending" and call.wait and wakeup is None:
                wakeup = call.wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
            elif wakeup is None or not queued:
                yield Sleep(pause)
            else:
                granted = yield Wait(wakeup, min(pause, claim.spec.ttl / 3), call.deadline)
                if granted is not None and granted.id == claim.id:
                    continue
                granted = None
        now = yield NOW


def _enter(
    queue: Queue, call: AcquireCall, wakeup: Any, queued: bool, unanswered: int
) -> Op[tuple[EnterResult, int]]:
    """Ask the store where the claim stands, and count the requests in a row that had no answer."""
    if call.first is not None:
        answer, call.first = call.first, None
        return answer, 0
    before, call.entered = call.entered, True
    try:
        answer = yield from queue.enter(call.claim, wakeup, call.wait, queued)
    except UnknownOutcome:
        if unanswered >= LOST_REPLIES:
            raise
        return BUSY, unanswered + 1
    if answer.state in NOT_IN_LINE:
        call.entered = before
    return answer, unanswered if answer is GIVEN_UP else 0


def _in_time(call: AcquireCall) -> Op[bool]:
    """Say whether the caller still wants to wait."""
    if call.deadline is None:
        return True
    return cast(bool, (yield Before(call.deadline)))


def _give_back(queue: Queue, claim: Claim) -> Op[StoreError | None]:
    """Take out a claim that was granted too late; return why not, since then it ends with its lease."""
    try:
        yield from queue.leave(claim)
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
    name = claim.spec.key.partition(SEPARATOR)[2]
    return StoreError(
        f"the connection was closed while it waited for {name!r}: it does not wait any more; connect again"
    )


def _until_next_try(call: AcquireCall, outage: Outage, pause: float, now: float, since: float) -> float:
    """Return how many seconds to wait for a store that is away since a moment.

    Raises:
        StoreError: there is no limit of time, and it has been away for so long that nobody should wait for it.
    """
    if call.deadline is not None:
        return max(0.0, min(pause, call.deadline - now))
    if now - since > outage.wait_limit:
        raise outage.error
    return pause


def _time_is_over(queue: Queue, call: AcquireCall, outage: Outage | None, queued: bool) -> Op[None]:
    """Take the claim out of the line, once: where it fails, its lease ends, and asking again would take as long.

    Raises:
        StoreError: it could not be taken out; or the store was away, and nobody else kept the lock from the caller.
    """
    if call.entered:
        try:
            yield from queue.leave(call.claim)
        except StoreError as error:
            call.entered = False
            if outage is not None:
                raise outage.error from error
            raise
        call.entered = False  # not where it was broken off: then the caller leaves
    if outage is not None and not queued:
        raise outage.error
