"""Acquire, on any Queue: enter the line, wait for the turn, start again when the claim is lost.

The lease of a claim is counted from *before* the request that created or renewed it was sent, on the claimer's
own monotonic clock; the store counts it from the arrival.  So a claim whose own deadline has not passed has not
expired in the store either, whatever the two clocks show.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
    first = call.first
    wakeup = granted = None
    again = False
    lost_replies = 0
    away_since: float | None = None
    while True:
        if call.closed:
            raise StoreError(
                f"the connection was closed while it waited for {claim.spec.key.partition(SEPARATOR)[2]!r}: it does "
                f"not wait any more; connect again"
            )
        if granted is not None:
            answer = EnterResult("using", granted.fence)
        elif first is not None:
            answer = first
            first = None
        else:
            entered, call.entered = call.entered, True
            try:
                answer = yield from queue.enter(claim, wakeup, call.wait, again)
                if answer.state in NOT_IN_LINE:
                    call.entered = entered
                if answer is not GIVEN_UP:
                    lost_replies = 0
            except UnknownOutcome:
                lost_replies += 1
                if lost_replies > LOST_REPLIES:
                    raise
                answer = BUSY
            if answer.asked:
                sent = now
        if answer.outage is None:
            away_since = None
        if answer.state == "using":
            alive = yield Before(sent + claim.spec.ttl)
            if alive:
                return Held(claim, answer.fence, sent + claim.spec.ttl)
            yield from queue.leave(claim)
        if answer.state == "using" or answer.state == "gone":
            fresh = yield FRESH_ID
            claim = call.claim = claim._replace(id=fresh)
            call.entered = False
            again = False
            granted = fresh = None
            if call.deadline is not None:
                # Leases that end before the replies come would else keep the caller here for ever.
                in_time = yield Before(call.deadline)
                if not in_time:
                    return None
            if answer is GIVEN_UP:
                lost_replies += 1
                if lost_replies > LOST_REPLIES:
                    raise UnknownOutcome(f"no answer to {lost_replies} claims in a row: is the store there?")
                yield Sleep(answer.look_again * 2**lost_replies)
        elif answer.state == "refused":
            return None
        elif answer.state == "occupied" and wakeup is None:
            wakeup = call.wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
        else:
            if answer.state == "pending" and not again and call.wait and call.on_queued is not None:
                call.on_queued(call)
            again = again or answer.state == "pending"
            in_time = True
            if call.deadline is not None:
                in_time = yield Before(call.deadline)
            if not in_time:
                if call.entered:
                    yield from _give_up(queue, call, answer.outage)
                if answer.outage is not None and not again:
                    raise answer.outage.error  # it was not others who kept the lock from it
                return None
            look_again = answer.look_again
            if answer.outage is not None:
                away_since = now if away_since is None else away_since
                now = yield NOW
                look_again = _until_next_try(call, answer.outage, look_again, now, away_since)
            if answer.state == "busy":  # whoever keeps the store busy for long is not asked all the time
                look_again += min(MOST_PAUSE, (now - call.started) / 20)
            if answer.state == "pending" and call.wait and wakeup is None:
                wakeup = call.wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
            elif wakeup is not None and again:
                heartbeat = min(look_again, claim.spec.ttl / 3)
                granted = yield Wait(wakeup, heartbeat, call.deadline)
                if granted is not None and granted.id != claim.id:
                    granted = None
                if granted is not None:
                    continue
            else:
                yield Sleep(look_again)
        now = yield NOW


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


def _give_up(queue: Queue, call: AcquireCall, outage: Outage | None) -> Op[None]:
    """Take the claim out of the line, once: where it fails, its lease ends, and asking again would take as long."""
    try:
        yield from queue.leave(call.claim)
    except StoreError as error:
        call.entered = False
        if outage is not None:
            raise outage.error from error
        raise
    call.entered = False
