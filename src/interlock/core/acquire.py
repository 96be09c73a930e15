"""Acquire, on any Queue: enter the line, wait for the turn, start again when the claim is lost.

The lease of a claim is counted from *before* the request that created or renewed it was sent, on the claimer's
own monotonic clock; the store counts it from the arrival.  So a claim whose own deadline has not passed has not
expired in the store either, whatever the two clocks show.
"""

from typing import Any, NamedTuple

from interlock.core.claims import SEPARATOR, Claim
from interlock.core.effects import FRESH_ID, NOW, Before, Op, Sleep, Subscribe, Wait
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import BUSY, GIVEN_UP, Outage, Queue, Turn

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


class Attempt:
    """One call of acquire; `claim` is always the one to take out of the line if the call is broken off.

    `first` is the store's answer if the claim has entered already; `owner` says whose call it is.  `entered` is False
    while nothing of it can be in the line, so that there is nothing to take out.
    """

    __slots__ = ("claim", "closed", "deadline", "entered", "first", "owner", "started", "wait", "wakeup")

    def __init__(
        self,
        claim: Claim,
        started: float,
        deadline: float | None,
        wait: bool,
        first: Turn | None = None,
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

    def call_off(self) -> None:
        """Let the call end with StoreError soon, because its connection is closed; from any thread."""
        self.closed = True  # in this order: who subscribes looks at it afterwards
        if self.wakeup is not None:
            self.wakeup.wake()


def acquire(queue: Queue, attempt: Attempt) -> Op[Held | None]:
    """Enter the line with `attempt.claim` and wait until it holds the lock.

    Args:
        queue: the store.
        attempt: claim, clock of the start, deadline (monotonic; None for no limit), one try or wait.

    Returns:
        The held claim, or None when the time is over or the try was refused; then nothing is left behind.

    Raises:
        StoreError: the store failed, or was away until the time was over, or the attempt was called off; the caller
            then leaves with `attempt.claim`, if that entered.
    """
    claim = attempt.claim
    sent = now = attempt.started
    first = attempt.first
    wakeup = told = None
    again = False
    lost_replies = 0
    away_since: float | None = None
    while True:
        if attempt.closed:
            raise StoreError(
                f"the connection was closed while it waited for {claim.terms.key.partition(SEPARATOR)[2]!r}: it does "
                f"not wait any more; connect again"
            )
        if told is not None:
            turn = Turn("using", told.fence)
        elif first is not None:
            turn = first
            first = None
        else:
            entered, attempt.entered = attempt.entered, True
            try:
                turn = yield from queue.enter(claim, wakeup, attempt.wait, again)
                if turn.state in NOT_IN_LINE:
                    attempt.entered = entered
                if turn is not GIVEN_UP:
                    lost_replies = 0
            except UnknownOutcome:
                lost_replies += 1
                if lost_replies > LOST_REPLIES:
                    raise
                turn = BUSY
            if turn.asked:
                sent = now
        if turn.outage is None:
            away_since = None
        if turn.state == "using":
            alive = yield Before(sent + claim.terms.ttl)
            if alive:
                return Held(claim, turn.fence, sent + claim.terms.ttl)
            yield from queue.leave(claim)
        if turn.state == "using" or turn.state == "gone":
            fresh = yield FRESH_ID
            claim = attempt.claim = claim._replace(id=fresh)
            attempt.entered = False
            again = False
            told = fresh = None
            if attempt.deadline is not None:
                # Leases that end before the replies come would else keep the caller here for ever.
                in_time = yield Before(attempt.deadline)
                if not in_time:
                    return None
            if turn is GIVEN_UP:
                lost_replies += 1
                if lost_replies > LOST_REPLIES:
                    raise UnknownOutcome(f"no answer to {lost_replies} claims in a row: is the store there?")
                yield Sleep(turn.look_again * 2**lost_replies)
        elif turn.state == "refused":
            return None
        elif turn.state == "occupied" and wakeup is None:
            wakeup = attempt.wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
        else:
            again = again or turn.state == "pending"
            in_time = True
            if attempt.deadline is not None:
                in_time = yield Before(attempt.deadline)
            if not in_time:
                if attempt.entered:
                    yield from _give_up(queue, attempt, turn.outage)
                if turn.outage is not None and not again:
                    raise turn.outage.error  # it was not others who kept the lock from it
                return None
            look_again = turn.look_again
            if turn.outage is not None:
                away_since = now if away_since is None else away_since
                now = yield NOW
                look_again = _until_next_try(attempt, turn.outage, look_again, now, away_since)
            if turn.state == "busy":  # whoever keeps the store busy for long is not asked all the time
                look_again += min(MOST_PAUSE, (now - attempt.started) / 20)
            if turn.state == "pending" and attempt.wait and wakeup is None:
                wakeup = attempt.wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
            elif wakeup is not None and again:
                heartbeat = min(look_again, claim.terms.ttl / 3)
                told = yield Wait(wakeup, heartbeat, attempt.deadline)
                if told is not None and told.id != claim.id:
                    told = None
                if told is not None:
                    continue
            else:
                yield Sleep(look_again)
        now = yield NOW


def _until_next_try(attempt: Attempt, outage: Outage, pause: float, now: float, since: float) -> float:
    """Return how many seconds to wait for a store that is away since a moment.

    Raises:
        StoreError: there is no limit of time, and it has been away for so long that nobody should wait for it.
    """
    if attempt.deadline is not None:
        return max(0.0, min(pause, attempt.deadline - now))
    if now - since > outage.patience:
        raise outage.error
    return pause


def _give_up(queue: Queue, attempt: Attempt, outage: Outage | None) -> Op[None]:
    """Take the claim out of the line, once: where it fails, its lease ends, and asking again would take as long."""
    try:
        yield from queue.leave(attempt.claim)
    except StoreError as error:
        attempt.entered = False
        if outage is not None:
            raise outage.error from error
        raise
    attempt.entered = False
